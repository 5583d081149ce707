# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Measures file I/O in a folder: `bench` makes a table, `tune` chooses DeepSpeed's `aio` section.

The file that is measured has no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from accel_core.errors import InvalidEnvironment, InvalidInput
from accel_ops.cli.progress import Progress
from accel_ops.io.engines import EngineOptions, open_engine
from accel_ops.io.session import Session
from accel_ops.memory import MEMORY

#: Bytes that are left free.
_RESERVE = 64 << 20
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def check_folder(path: Path, size: int) -> None:
    """Raise InvalidInput where no file of that size can be made."""
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise _unsuitable(path, found, "a folder", "name a folder on the disk that is to be measured")
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unsuitable(
            path, "no right to write", "a folder to write to", "change its mode, or name another"
        )
    facts = os.statvfs(path)
    free = facts.f_bavail * facts.f_frsize
    if free < size + _RESERVE:
        found, wanted = f"{free >> 20} MiB free", f"{(size + _RESERVE) >> 20} MiB"
        raise _unsuitable(
            path, found, f"at least {wanted}", "free space there, or name a folder on another disk"
        )


def check_on_disk(path: Path) -> None:
    """Raise InvalidInput for a file system in memory."""
    kind = file_system(path)
    if kind in _IN_MEMORY:
        raise _unsuitable(
            path,
            f"{kind}: its files are in memory",
            "a file system on a disk",
            "name a folder on the NVMe disk; offloading to memory is `device: cpu` in DeepSpeed's configuration",
        )


def file_system(path: Path) -> str:
    """Return the type of the file system; empty where the system does not say."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError, IndexError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            if line.split()[2] == number:
                return line.partition(" - ")[2].split()[0]
    return ""


@contextlib.contextmanager
def scratch_file(path: Path) -> Iterator[int]:
    """Open a file in the folder that has no name, with O_DIRECT where the file system has it; raises OSError."""
    fd = _unnamed(path)
    try:
        direct = _direct(fd)
        if direct >= 0:
            os.close(fd)
            fd = direct
        yield fd
    finally:
        os.close(fd)


def _unnamed(path: Path) -> int:
    try:
        return os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
    except (OSError, AttributeError):  # a file system, or a system, without such files
        fd, name = tempfile.mkstemp(prefix=".accel-io-", dir=path)
        os.unlink(name)
        return fd


def _direct(fd: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT)
    except (OSError, AttributeError):
        return -1


def _unsuitable(path: Path, found: str, expected: str, do: str) -> InvalidInput:
    return InvalidInput(f"file I/O cannot be measured in {path}: {found}; expected {expected}", do=do)


_BLOCK = 1 << 20
_THREADS = 8


class Rates(NamedTuple):
    """GB/s of overwriting a file, and of reading it."""

    write: float
    read: float

    def better(self, other: Rates) -> Rates:
        """Return the larger of each."""
        return Rates(*map(max, self, other))

    @property
    def mean(self) -> float:
        """The harmonic mean: GB/s of a byte that is written and read once."""
        return 2 / (1 / self.write + 1 / self.read)


class Measurement:
    """An open file, and page-locked memory of its size."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self.size = fd, size
        self._memory = MEMORY.allocate(size, torch.uint8)
        self._view = memoryview((ctypes.c_char * size).from_address(self._memory.data_ptr())).cast("B")
        pattern = torch.randint(0, 256, (_BLOCK,), dtype=torch.uint8)  # not zeros: some devices compress
        for part in self._memory.split(_BLOCK):
            part.copy_(pattern[: part.numel()])
        with closing(Session(EngineOptions())) as session:
            session.run(self._memory, fd, write=True)  # later writes overwrite

    def engine(self, name: str | None, options: EngineOptions) -> Rates:
        """Measure an engine, one request of the whole file; raises OSError, InvalidEnvironment."""
        with closing(Session(options, name)) as session:
            _ = session.engine  # opened before the clock starts
            return Rates(
                self._rate(lambda: session.run(self._memory, self._fd, write=True)),
                self._rate(lambda: session.run(self._memory, self._fd, write=False)),
            )

    def buffered(self) -> Rates:
        """Measure one thread through the page cache, as `dd conv=fsync` and `dd` with an empty cache."""
        fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR)

        def stored() -> None:
            self._blocks(os.pwritev, fd, range(self._count))
            os.fsync(fd)

        try:
            return Rates(
                self._rate(stored), self._rate(lambda: self._blocks(os.preadv, fd, range(self._count)))
            )
        finally:
            os.close(fd)

    def raw(self) -> Rates:
        """Measure 8 threads that do nothing but aligned system calls on the file: the limit of the disk."""

        def all_blocks(call: Callable[..., int]) -> None:
            with ThreadPoolExecutor(_THREADS) as pool:
                parts = [range(first, self._count, _THREADS) for first in range(_THREADS)]
                list(pool.map(lambda part: self._blocks(call, self._fd, part), parts))

        return Rates(self._rate(lambda: all_blocks(os.pwritev)), self._rate(lambda: all_blocks(os.preadv)))

    @property
    def _count(self) -> int:
        return -(-self.size // _BLOCK)

    def _blocks(self, call: Callable[..., int], fd: int, numbers: range) -> None:
        for number in numbers:
            begin, end = number * _BLOCK, min(self.size, (number + 1) * _BLOCK)
            while begin < end:
                begin += call(fd, [self._view[begin:end]], begin)

    def _rate(self, work: Callable[[], object]) -> float:
        # Where the file system refuses direct I/O, reads must not find the page cache full of the last write.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        work()
        return self.size / max(time.perf_counter() - start, 1e-9) / 1e9


@dataclass(frozen=True)
class Rate:
    """One line of the table. block and depth are 0 for plain system calls."""

    name: str
    block: int
    depth: int
    rates: Rates


def measured(args: argparse.Namespace) -> str:
    """Measure as the command line says; return the table or JSON. Raises InvalidInput, OSError."""
    check_folder(args.path, args.size)
    with Progress() as progress, scratch_file(args.path) as fd:
        progress.show(0, "making the file to be measured")
        rows = _rows(args, Measurement(fd, args.size), progress)
    return _json(args, rows) if args.json else _table(args, rows)


def _rows(args: argparse.Namespace, measurement: Measurement, progress: Progress) -> list[Rate]:
    kinds: list[tuple[str, int, int, Callable[[], Rates]]] = [
        ("buffered, 1 thread, fsync", 0, 0, measurement.buffered),
        ("raw direct, 8 threads", 1 << 20, 0, measurement.raw),
    ]
    engines = args.engine or [name for name in ("uring", "threads") if _usable(name)] or ["python"]
    for name, block, depth in itertools.product(engines, args.block, args.depth):
        options = EngineOptions(block, depth, args.workers)
        kinds.append((name, block, depth, partial(measurement.engine, name, options)))
    best: dict[int, Rates] = {}
    # Repetitions are apart in time: a disturbance does not hit one line alone.
    for turn, (number, (name, block, depth, work)) in itertools.product(range(args.repeat), enumerate(kinds)):
        progress.show(
            (turn * len(kinds) + number) / (args.repeat * len(kinds)), f"{name} {_short(block)} {depth}"
        )
        rates = work()
        best[number] = rates.better(best.get(number, rates))
    return [Rate(name, block, depth, best[number]) for number, (name, block, depth, _) in enumerate(kinds)]


def _table(args: argparse.Namespace, rows: list[Rate]) -> str:
    kind = file_system(args.path) or "unknown file system"
    lines = [
        f"{args.path} ({kind}), {args.size >> 20} MiB, best of {args.repeat}, GB/s",
        f"{'':28} {'block':>6} {'depth':>6} {'overwrite':>10} {'read':>10}",
    ]
    for row in rows:
        named = f"{row.name:28} {_short(row.block):>6} {row.depth or '':>6}"
        lines.append(f"{named} {row.rates.write:10.2f} {row.rates.read:10.2f}")
    return "\n".join(lines) + "\n"


def _json(args: argparse.Namespace, rows: list[Rate]) -> str:
    made: dict[str, Any] = {
        "path": str(args.path),
        "file_system": file_system(args.path),
        "size": args.size,
        "workers": args.workers,
        "repeat": args.repeat,
        "unit": "GB/s",
        "results": [
            {"name": row.name, "block_size": row.block, "queue_depth": row.depth, **row.rates._asdict()}
            for row in rows
        ],
    }
    return json.dumps(made, indent=2) + "\n"


def _short(size: int) -> str:
    if not size:
        return ""
    return f"{size >> 20}M" if size % (1 << 20) == 0 else f"{size >> 10}K"


def _usable(name: str) -> bool:
    try:
        open_engine(EngineOptions(), name).close(0)
    except InvalidEnvironment:
        return False
    return True


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
    """Measure, and return DeepSpeed's section as JSON. Raises InvalidInput, OSError."""
    until = time.monotonic() + seconds
    check_folder(path, _SIZE)
    check_on_disk(path)
    with Progress() as progress, scratch_file(path) as fd:
        progress.show(0, "making the file to be measured")
        measurement = Measurement(fd, _SMALL)
        if measurement.engine(None, EngineOptions()).mean > _FAST:
            measurement = Measurement(fd, _SIZE)
        rates = _measure_candidates(measurement, until, seconds, progress)
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


def _measure_candidates(
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
