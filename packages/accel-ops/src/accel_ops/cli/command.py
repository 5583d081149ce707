# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel io tune /mnt/nvme`: measure file I/O in a folder, choose DeepSpeed's options for it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accel_ops.io.engines import ENGINES

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    actions = parser.add_subparsers(metavar="action", dest="action", required=True)
    bench = actions.add_parser(
        "bench", help="GB/s of every engine, block size and queue depth, and the limits"
    )
    bench.add_argument("path", type=Path, help="a folder on the file system to measure")
    bench.add_argument(
        "--engine", nargs="+", choices=ENGINES, help="default: those that this process can use"
    )
    bench.add_argument(
        "--block", nargs="+", type=_size, default=[256 << 10, 1 << 20, 4 << 20], metavar="SIZE"
    )
    bench.add_argument("--depth", nargs="+", type=_natural, default=[8, 32, 128], metavar="N")
    bench.add_argument("--workers", type=_natural, default=1, metavar="N", help="of each engine (default 1)")
    bench.add_argument("--size", type=_size, default=256 << 20, help="of the file (default 256M)")
    bench.add_argument(
        "--repeat", type=_natural, default=2, metavar="N", help="the best of N counts (default 2)"
    )
    bench.add_argument("--json", action="store_true", help="print JSON")
    tune = actions.add_parser("tune", help="print the `aio` section for DeepSpeed's configuration, as JSON")
    tune.add_argument("path", type=Path, help="the folder of `nvme_path`")
    tune.add_argument(
        "--seconds", type=_seconds, default=30.0, help="for measurements, at most 50 (default 30)"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print; returns the exit status. Raises InvalidInput, OSError."""
    # Imported here: torch takes a second, which `--help` need not wait for.
    from accel_ops.cli import measurement

    if args.action == "tune":
        sys.stdout.write(measurement.tuned(args.path, min(args.seconds, measurement.MOST_SECONDS)))
        return 0
    sys.stdout.write(measurement.measured(args))
    return 0


def _size(text: str) -> int:
    number, unit = text[:-1], text[-1:].lower()
    if unit.isdigit():
        number, unit = text, ""
    size = int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0
    if size < 4096 or size % 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 4096 bytes, as 1M or 256K")
    return size


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _natural(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
