# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/results/programs.md and .json: each program on each simulated device, its losses against the CPU's."""

import sys
from typing import Any

from benchmarks import results
from benchmarks.programs import run

_TEXT = """\
Programs as users write them: three steps of training each, unless the name says otherwise, in float32, on tiny models
with random weights; those from DDP on run in two processes. `equal`: every loss is the CPU's to the last bit. A number:
the largest difference of a loss, as a part of it. Anything else is an error, as the program raised it. The programs are
in `benchmarks/programs`. Simulated devices show wiring, contracts and numerics, not speed or the vendor's driver.

    python -m benchmarks.programs"""


def main() -> None:
    """Run everything; exit with 1 if a program fails on a device."""
    parser = results.parser(__doc__)
    parser.add_argument("--devices", nargs="+", default=list(run.DEVICES), help="devices to run on")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for kind in run.KINDS:
        found = {device: run.outcomes(kind, device) for device in ("cpu", *options.devices)}
        for name, reference in found["cpu"].items():
            verdicts = {device: run.verdict(found[device][name], reference) for device in options.devices}
            rows.append({"program": name, **verdicts})
    results.write("programs", "Programs on simulated devices", _TEXT, rows, options.out)
    if not all(run.passes(row[device]) for row in rows for device in options.devices):
        sys.exit(1)


if __name__ == "__main__":
    main()
