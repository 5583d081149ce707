# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What `accel compare` names where nothing is wrong: programs on the CPU and on hardware-like simulated devices.

python -m benchmarks.compare_programs
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.launch import BIN, ROOT
from benchmarks.programs import run

_DEVICES = ("cuda", "hpu", "mlu", "mps", "npu", "sdaa", "xpu")
_NOTHING = "nothing"
_TEXT = """\
Each of the [programs](programs.md) is recorded by module on the CPU, and replayed on a simulated device in
[hardware-like mode](../simulated-devices.md#hardware-like-mode), where sums have another order and denormals are zero.
*nothing*: no event differs beyond rounding. Anything else is what `accel compare` names, which would be a false alarm,
or the error that ended the replay. Programs are not compiled while they are recorded.

    python -m benchmarks.compare_programs"""


def record(kind: str, program: str, folder: Path) -> None:
    """Record the program on the CPU."""
    done = _compare("record", kind, program, "cpu", folder)
    if done.returncode:
        raise SystemExit(f"{program} cannot be recorded:\n{done.stderr[-2000:]}")


def replay(kind: str, program: str, device: str, folder: Path) -> str:
    """Replay the program on a device; returns what is named."""
    done = _compare("replay", kind, program, device, folder)
    if done.returncode not in (0, 3):
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:300]
    found = json.loads((folder / "replay" / "compare.json").read_text(encoding="utf-8"))
    return " ".join(found["first"]["text"]) if found["first"] else _NOTHING


def _compare(
    action: str, kind: str, program: str, device: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    accel = str(BIN / "accel")
    sim = [] if device == "cpu" else [accel, "sim", device, "--like-hardware", "--devices", "2", "--"]
    launcher = [] if kind == "single" else [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    worker = ["-m", "benchmarks.programs.run", kind, device, program]
    return subprocess.run(
        [*sim, accel, "compare", action, str(folder), "--", *launcher, *worker],
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": device},
        capture_output=True, text=True, check=False, timeout=900, cwd=ROOT,
    )  # fmt: skip


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--devices", nargs="+", default=_DEVICES, help="devices to run on")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for kind in run.KINDS:
        for program in importlib.import_module(f"benchmarks.programs.{kind}").PROGRAMS.by_name:
            with tempfile.TemporaryDirectory() as folder:
                record(kind, program, Path(folder))
                found = {device: replay(kind, program, device, Path(folder)) for device in given.devices}
            rows.append({"program": program, **found})
            print(rows[-1], file=sys.stderr, flush=True)
    text = "Programs without a fault"
    results.write("compare-programs", text, _TEXT, rows, given.out)


if __name__ == "__main__":
    main()
