# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Whatever situation a run is in, it ends as the doctor says, and as another program that asks at the other door."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

TOY = {"TOY_PRIORITY": "2000"}
NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
RANK = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
}
DAVINCI = "dev/davinci0"
CANN = {"ASCEND_HOME_PATH": "/"}


@dataclass(frozen=True)
class Row:
    """One situation.

    prepare:   installs what it needs.   variables: its environment.
    start:     what stands between `python` and the program: a launcher; `typed`: an interactive session.
    codes:     problems and notes that the doctor has to have.
    apart:     the two doors differ, as they do where DeepSpeed is not joined.
    patience:  seconds after which a run counts as hanging.
    """

    what: str
    prepare: Callable[[Any], None] = lambda site: None
    variables: dict[str, str] = field(default_factory=dict)
    start: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    apart: bool = False
    quick: bool = False
    patience: float = 300.0


def no_record(site: Any, flag: str) -> None:
    """The classic toy, whose class derives from DeepSpeed's own; its record says so, or not."""
    site.toy("classic")
    record = site.path / "accel_classic/vendor.py"
    record.write_text(record.read_text().replace("imports_deepspeed=True", f"imports_deepspeed={flag}"))


def npu_without_package(site: Any) -> None:
    site.runtime("npu")
    site.device_file(DAVINCI)


def npu_with_package(site: Any, **package: Any) -> None:
    """A machine with an npu and its runtime, and a package for it."""
    npu_without_package(site)
    site.vendor("npu", 700, **{"confirm": "import torch_npu", "record": 'privateuse1="npu"', **package})


def npu_without_runtime(site: Any) -> None:
    site.device_file(DAVINCI)
    site.vendor("npu", vendor="raise OSError('libascendcl.so')")


def npu_claimed_twice(site: Any) -> None:
    npu_with_package(site)
    site.vendor("npu", 700, package="other-npu")


def newer_deepspeed_with_npu(site: Any) -> None:
    npu_with_package(site)
    site.deepspeed_asks_for_more("0.20.0")


def two_of_a_slot(site: Any) -> None:
    for key in ("mlu", "npu"):
        site.runtime(key, autoload=True)
        site.vendor(key, 700, f"import torch_{key}", record=f'privateuse1="{key}"')


def stale_holder(site: Any) -> None:
    site.runtime("stale", devices=0, autoload=True)
    site.vendor("stale", 2100, "import torch_stale", devices=0, record='privateuse1="stale"')
    site.vendor("fresh", 2000, "import torch_fresh", record='privateuse1="fresh"')
    site.runtime("fresh")


def ipex_with_external(site: Any) -> None:
    methods = "class XPU_Accelerator(DeepSpeedAccelerator): ..."
    source = f"from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator\n{methods}\n"
    site.module("intel_extension_for_deepspeed/__init__.py", source)
    site.distribution("intel_extension_for_deepspeed", "0.9.4")
    count = "import torch\ntorch.xpu.is_available = lambda: True\ntorch.xpu.device_count = lambda: 2\n"
    site.module("intel_extension_for_pytorch.py", count)
    site.distribution("intel_extension_for_pytorch", "2.8.0")
    site.device_file("dev/dri/renderD128")


def relabelled(site: Any) -> None:
    label = "import torch\ntorch.__version__ = '2.99.0'\n\n\ndef _autoload():\n    pass\n"
    site.runtime("relabelled", label, autoload=True)


def of_another_interface(site: Any) -> None:
    site.vendor("toy", vendor=_vendor_with("interface=2", "interface=1"))


def of_a_newer_core(site: Any) -> None:
    site.vendor("toy", vendor="from accel_core.vendor import Vendor, Telepathy\nVENDOR = Vendor()\n")


def _vendor_with(old: str, new: str) -> str:
    text = (
        "from accel_core.vendor import Vendor\n"
        "VENDOR = Vendor(key='toy', interface=2, accelerator='a:B', probe='p', priority=5, distribution='d',"
        " requires='x')\n"
    )
    assert old in text
    return text.replace(old, new)


def claimed_twice(site: Any) -> None:
    site.vendor("toy", package="accel-left")
    site.vendor("toy", package="accel-right")


INCOMPLETE = """
from accel_core.interface import DeepSpeedAccelerator

class Fake_Accelerator(DeepSpeedAccelerator):
    pass
"""

# One row a line, to be read as the table that it is.
ROWS = [
    Row("only a CPU", codes=("cpu-fallback",), quick=True),
    Row("a vendor's device is present", lambda s: s.toy(), TOY, quick=True),
    Row("a vendor's device below the CPU, asked for", lambda s: s.toy(), {"TOY_PRIORITY": "-5", "DS_ACCELERATOR": "toy"}),
    Row("DS_ACCELERATOR names nothing", variables={"DS_ACCELERATOR": "tpu"}, codes=("selection",), quick=True),
    Row("DS_ACCELERATOR is empty", variables={"DS_ACCELERATOR": ""}, codes=("selection",)),
    Row("npu asked for, neither package nor runtime", variables={"DS_ACCELERATOR": "npu"}, codes=("selection",)),
    Row("ACCEL_STRICT=1 with nothing but the CPU", variables={"ACCEL_STRICT": "1"}, codes=("selection",)),
    Row("ACCEL_STRICT has no meaning", variables={"ACCEL_STRICT": "maybe"}, codes=("environment",)),
    Row("ACCEL_SKIP passes over the vendor", lambda s: s.toy(), {**TOY, "ACCEL_SKIP": "toy"}),
    Row("bridge off: ACCEL_BRIDGE=0", lambda s: s.toy(), {**TOY, "ACCEL_BRIDGE": "0"}, codes=("bridge-off",), apart=True, quick=True),
    Row("autoload off", lambda s: s.toy(), {**TOY, **NO_AUTOLOAD}, codes=("bridge-off",), apart=True, quick=True),
    Row("autoload off, the vendor asked for", lambda s: s.toy(), {**TOY, **NO_AUTOLOAD, "DS_ACCELERATOR": "toy"}, codes=("bridge-off", "deepspeed-fails"), apart=True),
    Row("ACCEL_BRIDGE has no meaning", lambda s: s.toy(), {**TOY, "ACCEL_BRIDGE": "maybe"}, codes=("bridge-broken", "deepspeed-fails"), apart=True),
    Row("two vendors of equal priority", lambda s: (s.vendor("left"), s.vendor("right")), codes=("selection",), quick=True),
    Row("a runtime raises, the next device is chosen", lambda s: (s.toy(), s.vendor("sick", 2100, "raise OSError('libsick.so')")), TOY, codes=("candidate-broken",), quick=True),
    Row("a runtime raises, and was asked for", lambda s: s.vendor("sick", confirm="raise OSError('no driver')"), {"DS_ACCELERATOR": "sick"}, codes=("candidate-broken", "selection")),
    Row("a runtime aborts", lambda s: s.vendor("sick", confirm="import os; os.abort()"), codes=("candidate-stuck",), quick=True),
    Row("a runtime raises KeyboardInterrupt", lambda s: s.vendor("sick", confirm="raise KeyboardInterrupt"), codes=("candidate-stuck",), quick=True),
    Row("a runtime raises a BaseException of its own", lambda s: s.vendor("sick", confirm="raise type('Fatal', (BaseException,), {})('driver')"), codes=("candidate-broken", "selection")),
    Row("a runtime raises, and nothing shows its device", lambda s: s.vendor("sick", confirm="raise OSError('libsick.so')", hardware=None), codes=("candidate-broken", "cpu-fallback")),
    Row("a runtime raises, its device there, passed over by ACCEL_SKIP", lambda s: s.vendor("sick", confirm="raise OSError('libsick.so')"), {"ACCEL_SKIP": "sick"}, codes=("cpu-fallback",)),
    Row("a runtime hangs", lambda s: s.vendor("sick", confirm="import time; time.sleep(3600)"), codes=("candidate-stuck",), patience=100.0),
    Row("a constructor aborts", lambda s: s.vendor("sick", accelerator="import os; os.abort()"), codes=("candidate-stuck",)),
    Row("a class lacks methods", lambda s: s.vendor("sick", accelerator=INCOMPLETE), codes=("candidate-broken", "selection"), quick=True),
    Row("a class on DeepSpeed's own, unsaid in its record", lambda s: no_record(s, "False"), {"CLASSIC_PRIORITY": "3000"}, quick=True),
    Row("a class on DeepSpeed's own, said in its record", lambda s: no_record(s, "True"), {"CLASSIC_PRIORITY": "3000"}),
    Row("npu left to DeepSpeed's own backend, without CANN", npu_without_package, codes=("candidate-broken", "selection"), quick=True),
    Row("npu left to DeepSpeed's own backend, with CANN", npu_without_package, CANN, codes=("deferred",)),
    Row("accel-npu of another interface, with CANN", lambda s: npu_with_package(s, interface=1), CANN, codes=("entry-point", "deferred"), quick=True),
    Row("accel-npu of another interface, asked for", lambda s: npu_with_package(s, interface=1), {**CANN, "DS_ACCELERATOR": "npu"}, codes=("entry-point", "deferred")),
    Row("accel-npu of another interface, without CANN", lambda s: npu_with_package(s, interface=1), codes=("entry-point", "candidate-broken", "selection")),
    Row("accel-npu of another interface, ACCEL_STRICT=1", lambda s: npu_with_package(s, interface=1), {**CANN, "ACCEL_STRICT": "1"}, codes=("entry-point", "selection")),
    Row("accel-npu's record is broken", lambda s: npu_with_package(s, vendor="raise OSError('libfoo.so')"), CANN, codes=("entry-point", "deferred")),
    Row("accel-npu's record is broken, no runtime", npu_without_runtime, CANN, codes=("entry-point", "selection")),
    Row("accel-npu's record is broken, a device below it is present", lambda s: (npu_without_runtime(s), s.vendor("toy", 300)), codes=("entry-point",)),
    Row("accel-npu's constructor fails", lambda s: npu_with_package(s, accelerator="raise OSError('libfoo.so')"), CANN, codes=("candidate-broken", "deferred")),
    Row("accel-npu's runtime is broken", lambda s: npu_with_package(s, confirm="raise OSError('libfoo.so')"), CANN, codes=("candidate-broken", "deferred")),
    Row("torch_npu is broken, for accel-npu and DeepSpeed's own backend", lambda s: (npu_with_package(s), s.runtime("npu", "raise OSError('libhccl.so')")), CANN, codes=("candidate-broken", "selection")),
    Row("two packages claim npu", npu_claimed_twice, CANN, codes=("entry-point", "deferred")),
    Row("torch_npu counts devices, and there is no device file", lambda s: s.runtime("npu"), CANN, codes=("deferred",), quick=True),
    Row("torch_npu counts no device, and there is no device file", lambda s: s.runtime("npu", devices=0), CANN, codes=("cpu-fallback",)),
    Row("torch_npu fails, and there is no device file", lambda s: s.runtime("npu", "raise ImportError('libascend_hal.so')"), CANN, codes=("candidate-broken", "cpu-fallback")),
    Row("supa left to DeepSpeed's own backend", lambda s: s.runtime("supa"), codes=("deferred",), quick=True),
    Row("IPEX and Intel Extension for DeepSpeed, without accel-xpu", ipex_with_external, codes=("deferred",)),
    Row("two PrivateUse1 runtimes imported by torch", two_of_a_slot, codes=("torch-autoload",), quick=True),
    Row("a stale runtime imported by torch holds PrivateUse1", stale_holder, codes=("candidate-blocked", "selection")),
    Row("a backend extension breaks import torch", lambda s: s.runtime("sick", "raise ImportError('libhccl.so: cannot open shared object file')", autoload=True), codes=("torch-autoload",)),
    Row("a package of another interface", of_another_interface, codes=("entry-point",)),
    Row("a package that needs a newer accel-core", of_a_newer_core, codes=("entry-point",)),
    Row("two packages claim one key", claimed_twice, codes=("entry-point", "selection")),
    Row("asked for on a login node", lambda s: s.vendor("toy", devices=0), {"DS_ACCELERATOR": "toy"}, codes=("no-device",), quick=True),
    Row("a newer DeepSpeed that asks for more", lambda s: (s.toy(), s.deepspeed_asks_for_more("0.20.0")), TOY, codes=("deepspeed-version",), apart=True),
    Row("a newer DeepSpeed that asks for more, on a machine with npu", newer_deepspeed_with_npu, CANN, codes=("deepspeed-version",), apart=True),
    Row("a DeepSpeed release never tried", lambda s: (s.toy(), s.distribution("deepspeed", "0.19.99")), TOY, codes=("deepspeed-untried",), quick=True),
    Row("a torch release never tried", relabelled, codes=("torch-untried",), quick=True),
    Row("rank 1 of 2 in a launcher's environment", lambda s: s.toy(), {**TOY, **RANK}),
    Row("under torchrun, two ranks", lambda s: s.toy(), TOY, start=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")),
    Row("typed into an interactive session, as in a notebook", lambda s: s.toy(), TOY, start=("typed",)),
    Row("inside accel sim npu", lambda s: s.remove("accel-npu"), start=("-m", "accel_core.cli", "sim", "npu", "--", sys.executable)),
    Row("inside accel sim cuda, without the device's files", lambda s: s.remove("accel-cuda"), start=("-m", "accel_core.cli", "sim", "cuda", "--behaviour", "cuda.no-device-file", "--", sys.executable)),
]  # fmt: skip


def param(number: int, row: Row) -> Any:
    return pytest.param(number, row, id=row.what, marks=[] if row.quick else [pytest.mark.slow])


@pytest.mark.parametrize(("number", "row"), [param(*numbered) for numbered in enumerate(ROWS)])
@pytest.mark.sample("a class*", "a runtime aborts", "asked*", "npu left*", "DS_*", "a vendor*")
def test_the_run_ends_as_the_doctor_says_through_both_doors(
    situation: Any, request: pytest.FixtureRequest, number: int, row: Row
) -> None:
    row.prepare(situation.site)
    reports, ended = situation.outcome(row.variables, row.start, row.patience)
    core, upstream = ended["accel_core"], ended["deepspeed"]
    reported = [remark for kind in ("problems", "notes") for remark in reports[0][kind]]
    codes = [remark["code"] for remark in reported]
    tell = dict(request.node.user_properties)
    tell |= {"number": number, "situation": row.what, "accel_core": core[0].in_words()}
    differs = outcome(core[0]) != outcome(upstream[0])
    tell |= {"deepspeed": upstream[0].in_words() if differs else ""}
    tell["decision"] = ", ".join(codes) or "healthy"
    request.node.user_properties[:] = list(tell.items())
    assert set(row.codes) <= set(codes), reported
    for report in reports:
        for door, results in ended.items():
            for result in results:
                assert agrees(report["run"][door], result), (door, report["run"][door], result, reported)
    assert differs == row.apart


def outcome(ended: Any) -> str:
    """What has to be the same at both doors: the accelerator, or that there is none."""
    return ended.accelerator or "no accelerator"


def agrees(reported: dict[str, str], ended: Any) -> bool:
    """Whether the doctor's word about one door is what a program met there."""
    if ended.accelerator:
        return reported == {"accelerator": ended.accelerator, "error": ""}
    if reported["accelerator"] or not reported["error"]:
        return False
    if ended.death == "hangs":
        return "did not answer" in reported["error"]
    if ended.death:
        return str(ended.death) in reported["error"]
    # Which of an error's causes stands first depends on who caught it; the last words have to be there.
    cause = reported["error"].removeprefix("`import torch`: ").rpartition("its process ")[2]
    return cause in ended.traceback
