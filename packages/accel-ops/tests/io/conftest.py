# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of file I/O: engines, sessions, and programs in child processes."""

import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from accel_ops import library
from accel_ops.io.engines import EngineOptions
from accel_ops.io.session import Session
from accel_ops.pinned_memory import MEMORY

ENGINES = ("uring", "threads", "python")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine."""
    assert library.load().functions is not None
    return str(request.param)


@pytest.fixture
def each_engine(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine by the variable, as a user names it."""
    monkeypatch.setenv("ACCEL_IO_ENGINE", engine)


@pytest.fixture
def session(engine: str) -> Iterator[Session]:
    """A session on each engine, with small blocks, so that requests have several."""
    made = Session(EngineOptions(block_size=16384, depth=4, workers=2), engine)
    yield made
    made.close()


@pytest.fixture
def run_program(tmp_path: Path) -> Run:
    """Run Python source in a child process: `run_program(source, *arguments, prefix=(…), **environment)`."""

    def run(
        source: str, *arguments: object, prefix: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(source), encoding="utf-8")
        command = [*prefix, sys.executable, str(script), *map(str, arguments)]
        # The library compiles once, here, and not in each child with an empty cache.
        given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env=given, cwd=tmp_path
        )

    return run


#: Children save a state after the other, and are killed at a random time; what is found each time is one of the states.
_STORM = """
import os, random, signal, sys, time, torch
folder, kills = sys.argv[1], int(sys.argv[2])
os.mkdir(folder)
{saver}
save(0)
draw, last, advances, leftovers, files = random.Random(kills), 0, 0, 0, len(os.listdir(folder))
for kill in range(kills):
    child = os.fork()
    if not child:
        number = last
        while True:
            number += 1
            save(number)
    time.sleep(draw.uniform(0, {longest}))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    number = found(kill)
    assert number >= last, (number, last)
    leftovers += len(os.listdir(folder)) > files
    advances, last = advances + (number > last), number
save(1)
assert len(os.listdir(folder)) == files, os.listdir(folder)
print(advances, leftovers)
"""


def storm(run_program: Run, saver: str, longest: float, folder: Path, kills: int) -> tuple[int, int]:
    """Kill processes that save; return how many had saved something, and how many left files.

    saver: defines `save(number)`, and `found(kill)`, which checks what is there and returns its number.
    """
    ended = run_program(_STORM.format(saver=saver, longest=longest), folder / "saved", kills)
    assert ended.returncode == 0, ended.stderr
    advances, leftovers = map(int, ended.stdout.split())
    return advances, leftovers


_EDGES = (0, 1, 511, 512, 513, 4095, 4096, 4097, 16383, 16384, 16385, 65536, 1 << 20, (1 << 20) + 1)


def drawn_size(draw: random.Random, most: int) -> int:
    """A size near an edge, or of any magnitude."""
    if draw.random() < 0.4:
        return min(most, draw.choice(_EDGES))
    return min(most, int(2 ** draw.uniform(0, 26)))


def drawn_bytes(draw: random.Random, size: int) -> torch.Tensor:
    """Memory of a random alignment: locked, or of torch's allocator."""
    shift = draw.choice((0, 0, 1, 8, 64, 100, 512))
    whole = (
        MEMORY.allocate(size + shift, torch.uint8)
        if draw.random() < 0.3
        else torch.empty(size + shift).byte()
    )
    return whole[shift : shift + size]


def _round_trip(session: Session, path: Path, draw: random.Random, most: int) -> None:
    """Write into a file of other bytes, compare the file, and read part of it back."""
    size, offset = (
        drawn_size(draw, most),
        draw.choice((0, 0, draw.randrange(10000), drawn_size(draw, 1 << 21))),
    )
    before = draw.randbytes(min(draw.choice((0, offset, offset + size, offset + size + 5000)), 1 << 20))
    path.write_bytes(before)
    if before and draw.random() < 0.1:
        before = before[: draw.randrange(len(before))]
        os.truncate(path, len(before))
    data = drawn_bytes(draw, size)
    data.copy_(torch.frombuffer(bytearray(draw.randbytes(size)), dtype=torch.uint8) if size else data)
    transfer = session.submit(data, path, write=True, offset=offset)
    assert transfer.wait() == size
    expected = bytearray(before.ljust(offset + size, b"\0") if size else before)
    expected[offset : offset + size] = data.numpy().tobytes()
    assert path.read_bytes() == expected
    first = draw.randrange(len(expected) + 1)
    into = drawn_bytes(draw, draw.choice((len(expected) - first, min(100, len(expected) - first))))
    assert session.submit(into, str(path), write=False, offset=first).wait() == into.numel()
    assert into.numpy().tobytes() == expected[first : first + into.numel()]


def round_trips(path: Path, engine: str, sessions: int, count: int, most: int) -> None:
    """Make as many round trips on each of some sessions, with options that are drawn."""
    draw = random.Random(f"{engine}{sessions}{count}{most}")
    for _ in range(sessions):
        options = EngineOptions(
            draw.choice((4096, 50000, 1 << 20)), draw.choice((1, 3, 32)), draw.choice((1, 3))
        )
        session = Session(options, engine)
        try:
            for _ in range(count):
                _round_trip(session, path, draw, most)
        finally:
            session.close()
