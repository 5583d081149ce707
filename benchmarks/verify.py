# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What `accel verify` reports of the CPU and of every simulated device, and how long it takes.

    python -m benchmarks.verify                          # --quick, everywhere: about an hour
    python -m benchmarks.verify --mode full --keys cpu   # beside what was run before

The reports are kept in runs/verify. The page has all that are there and complete.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accel_sim.vendors import VENDORS
from accel_testkit.verify.report import NOT_RUN, PASSED, Report, read
from accel_testkit.verify.steps import STEPS
from benchmarks import results
from benchmarks.launch import BIN, ROOT

_KEYS = ("cpu", *sorted(vendor.key for vendor in VENDORS))
_MODES = ("quick", "full")
_PLAIN, _LIKE_HARDWARE, _ITSELF = "simulated", "like hardware", "itself"
_TEXT = """\
`accel verify` on the CPU of this machine and on simulated devices, plain and in [hardware-like
mode](../simulated-devices.md#hardware-like-mode). Checks are those of the conformance suite and of the engine. A check
is skipped if the accelerator declares that it lacks what is checked; steps that need two devices are not run on one. No
accelerator but the CPU was at hand: *no hardware yet*.

    python -m benchmarks.verify"""


def kinds(key: str) -> tuple[str, ...]:
    """How an accelerator can be had here."""
    return (_ITSELF,) if key == "cpu" else (_PLAIN, _LIKE_HARDWARE)


def folder(key: str, kind: str, mode: str) -> Path:
    """Where the report is kept."""
    return ROOT / "runs/verify" / "-".join([key, kind.replace(" ", "-"), mode])


def verify(key: str, kind: str, mode: str) -> None:
    """Run `accel verify`; it continues an interrupted report, and makes a complete one again."""
    accel = str(BIN / "accel")
    before = (
        [] if kind == _ITSELF else [accel, "sim", key, *["--like-hardware"] * (kind == _LIKE_HARDWARE), "--"]
    )
    command = [*before, accel, "verify", f"--{mode}", "--accel", key, "--out", str(folder(key, kind, mode))]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")


def row(kind: str, report: Report) -> dict[str, Any]:
    """A line of the table."""
    found = {one.step: one.found for one in report.rows}
    states = [one.state for one in report.rows]
    return {
        "accelerator": report.accelerator,
        "device": kind,
        "mode": report.mode,
        "made": report.made[:10],
        "minutes": sum(one.seconds for one in report.rows) / 60,
        "steps passed": states.count(PASSED),
        "not run": states.count(NOT_RUN),
        "failed": len(states) - states.count(PASSED) - states.count(NOT_RUN),
        "checks of a device": found["device"],
        "DeepSpeed's engine": found["engine-1"],
        "first failure": f"{report.worst.title}: {report.worst.found}" if report.worst else "",
    }


def rows() -> Iterator[dict[str, Any]]:
    """All complete reports that there are."""
    for mode in _MODES:
        for key in _KEYS:
            for kind in kinds(key):
                file = folder(key, kind, mode) / "report.json"
                made = read(file) if file.exists() else None
                if made and len(made.rows) == len(STEPS):
                    yield row(kind, made)


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--mode", choices=_MODES, default="quick")
    parser.add_argument("--keys", nargs="+", choices=_KEYS, default=_KEYS)
    given = parser.parse_args()
    for key in given.keys:
        for kind in kinds(key):
            verify(key, kind, given.mode)
    results.write("verify", "accel verify on simulated devices", _TEXT, list(rows()), given.out)


if __name__ == "__main__":
    main()
