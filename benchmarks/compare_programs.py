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

from accel_sim.vendors import VENDORS
from benchmarks import results
from benchmarks.launch import BIN, ROOT
from benchmarks.programs import run

_DEVICES = sorted(vendor.key for vendor in VENDORS)
_NOTHING = "nothing"
_TEXT = """\
Each of the [programs](programs.md) is recorded by module on the CPU, and replayed on a simulated device in
[hardware-like mode](../simulated-devices.md#hardware-like-mode), where sums have another order and denormals are zero.
*nothing*: no event differs beyond rounding. *no module*: none of torch's modules runs in the program, so that nothing
is recorded. Anything else is the program's own error, or what `accel compare` names, which would be a false alarm.
Programs are not compiled while they are recorded.

    python -m benchmarks.compare_programs"""


def outcome(kind: str, program: str, device: str, folder: Path) -> str:
    """Replay the program on a device, or record it on the CPU; returns what is named."""
    recorded = device == "cpu"
    done = _compare("record" if recorded else "replay", kind, program, device, folder)
    own = run.printed(done.stdout).get(program, {})
    if "error" in own:
        return str(own["error"])
    if done.returncode == 1 and "no torch module ran" in done.stderr:
        return "no module"
    if done.returncode not in (0, 3):
        raise SystemExit(f"{program} on {device}: status {done.returncode}\n{done.stderr[-2000:]}")
    found = (
        None
        if recorded
        else json.loads((folder / "replay" / "compare.json").read_text(encoding="utf-8"))["first"]
    )
    return " ".join(found["text"]) if found else _NOTHING


def _compare(
    action: str, kind: str, program: str, device: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    accel = str(BIN / "accel")
    sim = [] if device == "cpu" else [accel, "sim", device, "--like-hardware", "--devices", "2", "--"]
    return subprocess.run(
        [*sim, accel, "compare", action, str(folder), "--", *run.arguments(kind, device, [program])],
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
                recorded = outcome(kind, program, "cpu", Path(folder))
                found = {
                    device: recorded if recorded != _NOTHING else outcome(kind, program, device, Path(folder))
                    for device in given.devices
                }
            rows.append({"program": program, **found})
            print(rows[-1], file=sys.stderr, flush=True)
    results.write("compare-programs", "Programs without a fault", _TEXT, rows, given.out)


if __name__ == "__main__":
    main()
