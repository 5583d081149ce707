# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank gets a device of the inherited mask, and one of its own, whoever starts it. Devices are simulated.

`pytest tests/together/test_visible_devices.py --visible-devices docs/results/visible-devices.md` writes the table.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import accel_sim
from accel_sim import vendors
from accel_sim.vendors import uuid

pytestmark = [pytest.mark.upstream]

DEVICES = 4
_PYTHON = (sys.executable, "-W", "ignore")
_DEEPSPEED = (*_PYTHON, "-c", "from deepspeed.launcher.runner import main; main()")
_ACCEL = (*_PYTHON, "-m", "accel_core.cli", "launch")
#: Column -> command; {} is the number of ranks that a user of torchrun gives.
LAUNCHERS: dict[str, tuple[str, ...]] = {
    "none": _PYTHON,
    "torchrun": (*_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{}"),
    "`deepspeed`": _DEEPSPEED,
    "`deepspeed --num_gpus 1`": (*_DEEPSPEED, "--num_gpus", "1"),
    "`accel launch`": _ACCEL,
    "`accel launch --num_gpus 1`": (*_ACCEL, "--num_gpus", "1"),
}
MASKS: dict[str, str | None] = {
    "none": None,
    "subset": "1,3",
    "reordered": "3,1",
    "UUIDs": f"{uuid(1)},{uuid(3)}",
    "empty": "",
}
VENDORS = ("cuda", "xpu", "npu", "hpu", "mlu", "sdaa")
_ALL = [
    (vendor, mask, launcher)
    for vendor in VENDORS
    for mask in MASKS
    for launcher in LAUNCHERS
    if mask in ("subset", "reordered") or "num_gpus" not in launcher
]
_QUICK = {("hpu", "subset", "`accel launch --num_gpus 1`")}
#: Nothing of these may leak in from the shell that runs the tests.
_STEERING = (
    "ACCEL_", "DS_", "PYTHONPATH", "RANK", "LOCAL_", "WORLD_SIZE", "MASTER_", "TORCH_DEVICE_BACKEND_AUTOLOAD"
)  # fmt: skip


def visible(vendor: str, mask: str) -> list[int]:
    """What the runtime makes of the mask, by its vendor's documents."""
    if mask == "none":
        return list(range(DEVICES))
    if mask == "subset" or (mask == "UUIDs" and vendor == "cuda"):
        return [1, 3]
    if mask == "reordered":
        return {"npu": [3], "xpu": [1, 3]}.get(vendor, [3, 1])
    return []


def started(vendor: str, mask: str, launcher: str, folder: Path) -> tuple[list[int], str]:
    """The devices of the ranks in their order, and the last line of a launcher that failed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
    for simulated in vendors.VENDORS:
        for name in simulated.visible:
            kept.pop(name, None)
    environment = accel_sim.environment(vendor, devices=DEVICES, base=kept) | {
        "HELD": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    if (value := MASKS[mask]) is not None:
        environment[vendors.find(vendor).visible[0]] = value
    number = str(max(len(visible(vendor, mask)), 1))
    command = [word.replace("{}", number) for word in LAUNCHERS[launcher]]
    program = str(Path(__file__).with_name("hold.py"))
    done = subprocess.run(
        [*command, program],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=600,
        check=False,
    )
    ranks = sorted(folder.iterdir(), key=lambda path: int(path.name))
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "ACC-" in line or "Error" in line]
    said = (lines or [f"exit status {done.returncode}"])[-1] if done.returncode else ""
    return [int(path.read_text()) for path in ranks], said


@pytest.mark.parametrize(
    ("vendor", "mask", "launcher"),
    [pytest.param(*cell, marks=[] if cell in _QUICK else [pytest.mark.slow]) for cell in _ALL],
)
def test_a_rank_gets_a_device_of_the_mask(
    vendor: str, mask: str, launcher: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    held, refused = started(vendor, mask, launcher, tmp_path)
    for name, value in (("vendor", vendor), ("mask", mask), ("launcher", launcher)):
        record_property(name, value)
    there = visible(vendor, mask)
    shown = ", ".join("cpu" if number < 0 else str(number) for number in held)
    record_property("cell", f"refused: {refused}" if refused else shown)
    if refused:
        # Only what the vendor's runtime does not read is refused; nothing has started then.
        assert held == []
        assert not there or len(there) < len((MASKS[mask] or "").split(",")), refused
    elif not there:
        assert held == [-1]
    elif "num_gpus" in launcher:
        # The mask is narrowed as it is written, also where the runtime has an order of its own.
        assert held == [int((MASKS[mask] or "").partition(",")[0])]
    elif launcher == "none":
        assert held == there[:1]
    else:
        assert held == there
