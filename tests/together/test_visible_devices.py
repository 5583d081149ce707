# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank gets a device of the inherited mask, and its own one, under every launcher. Devices are simulated.

`pytest tests/together/test_visible_devices.py --visible-devices docs/results/visible-devices.md` writes the table.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import accel_sim
from accel_core import processes
from accel_sim import vendors
from shared.children import inherited

pytestmark = [pytest.mark.upstream]

DEVICES = 4
_PYTHON = (sys.executable, "-W", "ignore")
_DEEPSPEED = (*_PYTHON, "-c", "from deepspeed.launcher.runner import main; main()")
_ACCEL = (*_PYTHON, "-m", "accel_core.cli", "launch")
DOCTOR = "`accel doctor`"
#: Column -> command; {} is the number of ranks that a user of torchrun gives. The doctor starts none.
LAUNCHERS: dict[str, tuple[str, ...]] = {
    "none": _PYTHON,
    "torchrun": (*_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{}"),
    "`deepspeed`": _DEEPSPEED,
    "`deepspeed --num_gpus 1`": (*_DEEPSPEED, "--num_gpus", "1"),
    "`accel launch`": _ACCEL,
    DOCTOR: (*_PYTHON, "-m", "accel_core.cli", "doctor", "--json"),
    "`accel launch --num_gpus 1`": (*_ACCEL, "--num_gpus", "1"),
}
MASKS: dict[str, str | None] = {
    "none": None,
    "subset": "1,3",
    "reordered": "3,1",
    "UUIDs": "",
    "empty": "",
    "unknown": "1,9,2",
    "unknown first": "9,1",
    "repeated": "1,1,2",
    "negative": "1,-1,2",
    "spaces": "1, 3",
    "text": "NoDevFiles",
}
VENDORS = ("cuda", "xpu", "npu", "hpu", "mlu", "sdaa", "supa", "klxpu")
#: What a runtime makes of each, by its vendor's documents and sources; there are none of hpu, sdaa, supa and klxpu.
_READ: dict[str, dict[str, tuple[int, ...]]] = {
    "subset": dict.fromkeys(VENDORS, (1, 3)),
    "reordered": {**dict.fromkeys(VENDORS, (3, 1)), "npu": (), "xpu": (1, 3)},
    "UUIDs": {"cuda": (1, 3), "mlu": (1, 3)},
    "empty": {"xpu": (0, 1, 2, 3)},
    "unknown": {**dict.fromkeys(VENDORS, (1,)), "xpu": (1, 2)},
    "unknown first": {"xpu": (1,)},
    "repeated": dict.fromkeys(("xpu", "hpu", "sdaa", "supa", "klxpu"), (1, 2)),
    "negative": {**dict.fromkeys(VENDORS, (1,)), "xpu": (1, 2)},
    "spaces": {**dict.fromkeys(VENDORS, (1, 3)), "npu": (1,)},
    "text": {},
}
#: One of each command that reads the variable itself.
_SPOT = [
    ("npu", "spaces", "`accel launch`"), ("cuda", "unknown", "`deepspeed`"), ("xpu", "unknown", DOCTOR)
]  # fmt: skip
_WHOLE = ("none", "subset", "reordered", "UUIDs", "empty")
_ALL = _SPOT + [
    (vendor, mask, launcher)
    for vendor in VENDORS
    for mask in _WHOLE
    for launcher in LAUNCHERS
    if launcher != DOCTOR and (mask in ("subset", "reordered") or "num_gpus" not in launcher)
]


def value_of(vendor: str, mask: str) -> str | None:
    if mask != "UUIDs":
        return MASKS[mask]
    name = vendors.find(vendor).uuid or "GPU-{:08x}"
    return f"{name.format(1)},{name.format(3)}"


def visible(vendor: str, mask: str) -> list[int]:
    return [*range(DEVICES)] if mask == "none" else [*_READ[mask].get(vendor, ())]


def started(vendor: str, mask: str, launcher: str, folder: Path) -> tuple[list[int], str, str]:
    """The devices of the ranks in their order, the last line of a launcher that failed, and all that it printed."""
    kept = inherited()
    for simulated in vendors.VENDORS:
        for name in simulated.visible.variables:
            kept.pop(name, None)
    environment = accel_sim.environment(vendor, devices=DEVICES, base=kept) | {
        "HELD": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    if (value := value_of(vendor, mask)) is not None:
        environment[vendors.find(vendor).visible.variables[0]] = value
    number = str(max(len(visible(vendor, mask)), 1))
    command = [word.replace("{}", number) for word in LAUNCHERS[launcher]]
    program = [] if launcher == DOCTOR else [str(Path(__file__).with_name("hold.py"))]
    done = processes.run([*command, *program], 600, env=environment, cwd=folder)
    ranks = sorted(folder.iterdir(), key=lambda path: int(path.name))
    printed = done.stdout if launcher == DOCTOR else done.stdout + done.stderr
    lines = [line for line in printed.splitlines() if "[ACC-" in line or "Error" in line]
    said = (lines or [f"exit status {done.returncode}"])[-1] if done.returncode else ""
    return [int(path.read_text()) for path in ranks], said, printed


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("mask", _READ)
def test_rule_of_the_runtime(vendor: str, mask: str, record_property: Callable[[str, object], None]) -> None:
    """The simulated runtime reads a list as its vendor's does, and the package has the same rule."""
    simulated, value = vendors.find(vendor), value_of(vendor, mask) or ""
    variables = {simulated.visible.variables[0]: value}
    found = vendors.visible_devices(simulated, DEVICES, variables)
    place, name = _RULES[vendor]
    rule = getattr(importlib.import_module(f"accel_{vendor}.{place}"), name)
    remarks = rule.remarks(len(found), variables)
    cell = "; ".join([", ".join(map(str, found)) or "no device", *map(_short, remarks)])
    for name, text in (("vendor", vendor), ("mask", mask), ("launcher", "runtime"), ("cell", cell)):
        record_property(name, text)
    assert rule == simulated.visible
    assert list(found) == visible(vendor, mask)
    assert bool(remarks) == (ignored(vendor, mask) or not found)


def _short(remark: str) -> str:
    return re.sub(r" of \w+=[^:]*", "", remark.removeprefix("the runtime "))


_RULES = {
    "cuda": ("visible", "CUDA"), "xpu": ("hardware", "AFFINITY"), "npu": ("visible", "VISIBLE"),
    "hpu": ("probe", "MODULES"), "mlu": ("visible", "VISIBLE"), "sdaa": ("probe", "VISIBLE"),
    "supa": ("probe", "VISIBLE"), "klxpu": ("probe", "VISIBLE"),
}  # fmt: skip


def ignored(vendor: str, mask: str) -> bool:
    """True if some of the list is not used, and a reason can name it."""
    value = value_of(vendor, mask)
    return bool(value) and len(visible(vendor, mask)) < len((value or "").split(","))


@pytest.mark.parametrize(
    ("vendor", "mask", "launcher"),
    [pytest.param(*cell, marks=[] if cell in _SPOT else [pytest.mark.slow]) for cell in _ALL],
)
def test_a_rank_gets_a_device_of_the_mask(
    vendor: str, mask: str, launcher: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    held, refused, printed = started(vendor, mask, launcher, tmp_path)
    for name, value in (("vendor", vendor), ("mask", mask), ("launcher", launcher)):
        record_property(name, value)
    there = visible(vendor, mask)
    names = "the runtime ignores" in printed
    if launcher == DOCTOR:
        (found,) = [
            each
            for each in json.loads(printed)["candidates"]
            if each["key"] == vendor and each["devices"] is not None
        ]
        _, _, remark = found["reason"].partition("; the runtime ")
        record_property("cell", f"{found['devices']}" + f"; {remark.partition(' of ')[0]}" * bool(remark))
        assert found["devices"] == len(there), found
        assert names == ignored(vendor, mask)
    else:
        shown = ", ".join("cpu" if number < 0 else str(number) for number in held)
        record_property("cell", f"refused: {refused}" if refused else shown)
        assert not refused
        if not there:
            assert held == [-1]
        elif "num_gpus" in launcher:
            # The mask is narrowed as it is written, also where the runtime has an order of its own.
            assert held == [int((MASKS[mask] or "").partition(",")[0])]
        elif launcher == "none":
            assert held == there[:1]
        else:
            assert held == there
        if "launch" in launcher or "deepspeed" in launcher:
            assert names == ignored(vendor, mask), printed
