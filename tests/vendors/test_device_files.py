# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Selection and doctor on machines whose device files are there, missing, renamed, unreadable or another maker's.

The table of docs/selection.md: each device in each situation, with its package and with DeepSpeed's own backend.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from accel_core.cli.doctor import advice, command
from accel_core.cli.doctor.examine import Bridge, DeepSpeedInfo, Facts, Torch
from accel_core.devices import CPU_KEY
from accel_core.selection import candidates
from accel_core.selection.candidates import Candidate, CandidateSet, Discovery, State
from accel_core.selection.choose import Request
from accel_core.selection.current import Selection, explained, run_selection
from accel_core.upstream.backends import StockDeepSpeed
from accel_testkit.fake_runtime import FakeRuntime

#: A runtime that is `torch.<key>` itself; `_C` as IPEX has it.
_RUNTIME = """
import sys, types, torch

def is_available(): return device_count() > 0
def device_count(): return {count}

_C = types.SimpleNamespace(_has_xpu=lambda: True)
{key} = torch.{key} = sys.modules[__name__]
"""
_FAILS = "raise OSError('libdriver.so: cannot open shared object file')"


@dataclass(frozen=True)
class Device:
    """A vendor's device.

    file:    of the device; driver: one that is there without a device.
    foreign: a file of its name that is another maker's, and that maker.
    package: the distribution of its runtime; empty for a build of torch.
    build:   fields of torch.version.
    """

    label: str
    file: str
    driver: str
    foreign: tuple[str, str] = ("", "")
    package: str = ""
    version: str = ""
    module: str = ""
    build: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.label.partition(" ")[0]

    def install(self, machine: FakeRuntime, monkeypatch: pytest.MonkeyPatch, count: int | None) -> None:
        """Install its runtime, which counts devices, or fails if `count` is None."""
        monkeypatch.setattr(torch, self.key, getattr(torch, self.key, None), raising=False)
        machine.torch_build(**dict.fromkeys(self.build, "12.8"))
        if self.module:
            source = _FAILS if count is None else _RUNTIME.format(key=self.key, count=count)
            machine.install(self.package, self.version, source, module=self.module)
        if self.build:
            _replace(monkeypatch, getattr(torch, self.key), count)


def _replace(monkeypatch: pytest.MonkeyPatch, namespace: Any, count: int | None) -> None:
    def device_count() -> int:
        if count is None:
            raise OSError("libdriver.so: cannot open shared object file")
        return count

    for name, function in {"device_count": device_count, "is_available": lambda: device_count() > 0}.items():
        function.__module__ = namespace.__name__  # torch's own, not another vendor's
        monkeypatch.setattr(namespace, name, function)


RENDER = "dev/dri/renderD128"
DEVICES = (
    Device("npu", "dev/davinci0", "dev/davinci_manager", package="torch_npu", version="2.13.0", module="torch_npu"),
    Device("sdaa", "dev/tcaicard0", "dev/tcaicard_ctl", package="torch_sdaa", version="3.2.0", module="torch_sdaa"),
    Device("hpu", "dev/accel/accel0", "dev/accel/accel_controlD0", ("dev/accel/accel0", "0x8086"),
           "habana_torch_plugin", "1.22.1", "habana_frameworks.torch.hpu"),
    Device("mlu", "dev/cambricon_dev0", "dev/cambricon_ctl", package="torch_mlu", version="1.25.0", module="torch_mlu"),
    Device("supa", "dev/biren/card_0", "dev/biren-m", package="torch_supa", version="1.0.0", module="torch_supa"),
    Device("cuda", "dev/nvidia0", "dev/nvidiactl", build=("cuda",)),
    Device("xpu (native)", RENDER, "dev/dri/card0", (RENDER, "0x10de"), build=("xpu",)),
    Device("xpu (ipex)", RENDER, "dev/dri/card0", (RENDER, "0x1002"),
           "intel_extension_for_pytorch", "2.8.10", "intel_extension_for_pytorch"),
)  # fmt: skip
NPU, CUDA, NATIVE = DEVICES[0], DEVICES[5], DEVICES[6]
#: Other files by which a device is known: virtual NPUs, Jetson, MetaX, Iluvatar, WSL, ROCm and Hygon, older Gaudi.
OTHERS = (
    replace(NPU, file="dev/vdavinci100"),
    *(
        replace(CUDA, file=f"dev/{name}")
        for name in ("nvhost-gpu", "nvgpu/igpu0/ctrl", "mxcd", "iluvatar0", "dxg")
    ),
    replace(CUDA, file="dev/kfd", build=("hip",)),
    replace(NATIVE, file="dev/dxg"),
    replace(DEVICES[2], file="dev/hl0"),
)


class Situation(NamedTuple):
    """What the machine has, and what a run and the doctor make of it.

    files:  `own`, `driver`, `foreign`, `closed` (its own, without permission) or none.
    count:  of the runtime; None if it fails, -1 if it is not installed.
    asked:  DS_ACCELERATOR names it.
    state, chosen: of the candidate, and the key that a run uses; empty if it is an error.
    health, codes: the first word of the doctor's first line, and what it lists.
    """

    files: str
    count: int | None
    state: State
    chosen: str
    health: str = "Healthy"
    codes: tuple[str, ...] = ()
    asked: bool = False


DEVICE, CPU, ERROR = "device", "cpu", ""
FALLBACK = ("cpu-fallback",)
SITUATIONS = {
    "its files, and it counts": Situation("own", 2, State.CHOSEN, DEVICE),
    "no file, as in a container, and it counts": Situation("", 2, State.CHOSEN, DEVICE),
    "its files, and it counts none": Situation("own", 0, State.ABSENT, CPU, "Healthy", FALLBACK),
    "no file, and it counts none": Situation("", 0, State.ABSENT, CPU, "Healthy", FALLBACK),
    "no permission, and it counts none": Situation(
        "closed", 0, State.ABSENT, CPU, "1 problem", ("device-permission", *FALLBACK)),
    "its files, and it fails": Situation(
        "own", None, State.BROKEN, ERROR, "2 problems", ("candidate-broken", "selection")),
    "no file, and it fails": Situation("", None, State.BROKEN, CPU, "1 problem", ("candidate-broken", *FALLBACK)),
    "the driver's files alone, and it fails": Situation(
        "driver", None, State.BROKEN, CPU, "1 problem", ("candidate-broken", *FALLBACK)),
    "files of another maker, and it fails": Situation(
        "foreign", None, State.BROKEN, CPU, "1 problem", ("candidate-broken", *FALLBACK)),
    "its files, and no runtime": Situation("own", -1, State.ABSENT, CPU, "Healthy", FALLBACK),
    "no file, and no runtime": Situation("", -1, State.ABSENT, CPU, "Healthy", FALLBACK),
    "asked for, no file, and it counts": Situation("", 2, State.CHOSEN, DEVICE, asked=True),
    "asked for, no file, and it counts none": Situation(
        "", 0, State.CHOSEN, DEVICE, "1 problem", ("no-device",), asked=True),
    "asked for, no file, and it fails": Situation(
        "", None, State.BROKEN, ERROR, "2 problems", ("candidate-broken", "selection"), asked=True),
}  # fmt: skip


@pytest.fixture
def machine(fake_runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """A machine on which no variable hides devices."""
    for name in ("ASCEND_HOME_PATH", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    return fake_runtime


def plug(machine: FakeRuntime, device: Device, files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the device files of a situation."""
    if files in ("own", "closed"):
        machine.device(device.file)
    if files == "driver":
        machine.device(device.driver)
    if files == "closed":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    if files == "foreign":
        path, maker = device.foreign
        machine.device(path)
        vendor = machine.root / "sys/class/drm" / Path(path).name / "device/vendor"
        vendor.parent.mkdir(parents=True)
        vendor.write_text(f"{maker}\n")


def selected(key: str | None, deepspeed: StockDeepSpeed) -> Selection:
    """Select as a run does, without constructing the accelerator."""
    found = CandidateSet(deepspeed)
    request = Request(asked=key, upstream=deepspeed.keys())
    return run_selection(found, request, lambda one: (found.confirm(one), ""), lambda one: one.key)


class Stock(StockDeepSpeed):
    """DeepSpeed with backends of its own for these keys; None: without DeepSpeed."""

    def __init__(self, keys: frozenset[str] | None) -> None:
        super().__init__()
        self.own = keys

    def keys(self) -> frozenset[str] | None:
        return self.own


def doctor(selection: Selection) -> command.DoctorReport:
    """Return the doctor's report about a selection whose runtimes have been asked."""
    facts = Facts(
        python={"version": "3", "executable": "python"}, core="0", torch=Torch("2.13.0", True, True),
        deepspeed=DeepSpeedInfo("0.19.8", "", True), bridge=Bridge(True, ""), unmet=(),
        selection=selection, explanation=explained(selection),
    )  # fmt: skip
    return command.DoctorReport(facts, tuple(advice.problems(facts)), tuple(advice.notes(facts)))


def _cells() -> list[Any]:
    return [
        pytest.param(device, situation, id=f"{device.label} {device.file}: {name}")
        for device in (*DEVICES, *OTHERS)
        for name, situation in SITUATIONS.items()
        if (
            device in DEVICES or name == "its files, and it fails"
        )  # an error only where a file shows a device
        and (situation.files != "foreign" or device.foreign[0])
    ]


@pytest.mark.parametrize("owner", ["package", "deepspeed"])
@pytest.mark.parametrize(("device", "situation"), _cells())
def test_runtime_decides_where_a_device_file_is_missing(
    owner: str, device: Device, situation: Situation, machine: FakeRuntime, monkeypatch: Any, capsys: Any
) -> None:
    deepspeed = Stock(frozenset({device.key, CPU_KEY}) if owner == "deepspeed" else None)
    if owner == "deepspeed":
        ours = [vendor for vendor in candidates.discover().vendors if vendor.key == CPU_KEY]
        monkeypatch.setattr(candidates, "discover", lambda: Discovery(tuple(ours), ()))
    if situation.count != -1:
        device.install(machine, monkeypatch, situation.count)
    elif device.package:
        machine.uninstall(device.package)
    plug(machine, device, situation.files, monkeypatch)
    selection = selected(device.key if situation.asked else None, deepspeed)
    found = _candidate(selection, device.label)
    report = doctor(selection)
    monkeypatch.setenv("COLUMNS", "300")  # rich wraps lines
    command.show(report)
    codes = tuple(remark.code for remark in (*report.problems, *report.notes))
    lines = capsys.readouterr().out.splitlines()
    chosen = selection.decision.candidate
    state = {State.DEFERRED: State.CHOSEN, State.NOT_INSTALLED: State.ABSENT}.get(found.state, found.state)
    assert state is situation.state, found.reason
    assert (chosen.key if chosen else "") == {DEVICE: device.key}.get(situation.chosen, situation.chosen)
    assert tuple(code for code in codes if code != "deferred") == situation.codes
    answer = lines[0]
    assert answer.startswith(f"{situation.health}. A fresh process with this environment would ")
    assert f"would use {chosen.key} (" in answer if chosen else "get this error:" in answer
    if situation.files in ("", "foreign") and situation.count in (0, None) and not situation.asked:
        assert "no device file dev/" in found.reason
    if (situation.files, situation.count) == ("own", -1):
        assert f"/{device.file} exists" in found.reason
        (note,) = (each.found for each in report.notes if each.code == "cpu-fallback")
        assert device.key in note.partition("no runtime counts the device of ")[2].split(", ")


def _candidate(selection: Selection, label: str) -> Candidate:
    (found,) = [one for one in selection.decision.candidates if one.label == label]
    return found
