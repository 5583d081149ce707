# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel io tune`: measures options until its time is over, and prints the best as DeepSpeed's `aio` section."""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path

from accel_ops.cli import folder
from accel_ops.cli.measurement import Measurement, Rates
from accel_ops.cli.progress import Progress
from accel_ops.io.requests import EngineOptions

#: With the start and one measurement that is under way, less than a minute.
MOST_SECONDS = 50.0
_SIZE = 256 << 20
_SMALL = 32 << 20
#: Slower than this, a measurement of _SIZE takes longer than a second.
_FAST = 0.5
#: From the cheapest in memory and threads to the dearest.
_CANDIDATES = [
    EngineOptions(block, depth, workers)
    for workers, depth, block in itertools.product((1, 2, 4), (8, 32, 128), (256 << 10, 1 << 20, 4 << 20))
]
#: Rates within this share of the best are as good: the cheapest of them is chosen.
_AS_GOOD = 0.97
_FINALISTS = 4


def tuned(path: Path, seconds: float) -> str:
    """Measure, and return DeepSpeed's section as JSON. Raises UnsuitableFolder, OSError."""
    until = time.monotonic() + seconds
    folder.check(path, _SIZE)
    folder.check_on_disk(path)
    with Progress() as progress, folder.scratch_file(path) as fd:
        progress.show(0, "making the file to be measured")
        measurement = Measurement(fd, _SMALL)
        if measurement.engine(None, EngineOptions()).mean > _FAST:
            measurement = Measurement(fd, _SIZE)
        rates = _measured(measurement, until, seconds, progress)
    chosen = best(rates)
    found = rates[chosen]
    sys.stderr.write(
        f"{path}: overwrite {found.write:.2f} GB/s, read {found.read:.2f} GB/s;"
        f" {len(rates)} of {len(_CANDIDATES)} combinations measured\n"
    )
    return section(chosen)


def section(options: EngineOptions) -> str:
    """Return the options as a section of DeepSpeed's configuration, in JSON."""
    made = {
        "block_size": options.block_size,
        "queue_depth": options.depth,
        "intra_op_parallelism": options.workers,
        "single_submit": False,
        "overlap_events": True,
    }
    return json.dumps({"aio": made}, indent=2) + "\n"


def best(rates: dict[EngineOptions, Rates]) -> EngineOptions:
    """Return the cheapest options whose rates are as good as the best."""
    limit = _AS_GOOD * max(each.mean for each in rates.values())
    return next(options for options in _CANDIDATES if options in rates and rates[options].mean >= limit)


def _measured(
    measurement: Measurement, until: float, seconds: float, progress: Progress
) -> dict[EngineOptions, Rates]:
    """Measure all candidates once, then the best of them again, until the time is over."""
    rates: dict[EngineOptions, Rates] = {}
    # The middle of each range first: a slow disk leaves time for few.
    order = sorted(_CANDIDATES, key=lambda each: (each.block_size != 1 << 20) + (each.depth != 32))
    while True:
        for options in order:
            left = until - time.monotonic()
            if left < 0 and rates:
                return rates
            text = f"block {options.block_size >> 10}K, depth {options.depth}, {options.workers} workers"
            progress.show(1 - left / seconds if seconds else 1, text)
            found = measurement.engine(None, options)
            rates[options] = found.better(rates.get(options, found))
        order = sorted(rates, key=lambda each: -rates[each].mean)[:_FINALISTS]
