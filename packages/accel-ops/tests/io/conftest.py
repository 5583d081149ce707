# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of file I/O: engines, sessions, and programs in child processes."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accel_core import processes
from accel_ops.host import library
from accel_ops.io.engines import EngineOptions
from accel_ops.io.session import Session

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


#: What programs need of file I/O, and of the system.
_IMPORTS = """
import os, resource, signal, sys, torch
from accel_ops import io
from accel_ops.io.engines import EngineOptions, open_engine
from accel_ops.io.session import Session
"""


@pytest.fixture
def run_program(tmp_path: Path) -> Run:
    """Run Python source in a child process: `run_program(source, *arguments, prefix=(…), **environment)`.

    What `_IMPORTS` has is there.
    """

    def run(
        source: str, *arguments: object, prefix: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        script.write_text(_IMPORTS + textwrap.dedent(source), encoding="utf-8")
        command = [*prefix, sys.executable, str(script), *map(str, arguments)]
        # The library compiles once, here, and not in each child with an empty cache.
        given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        return processes.run(command, 300, env=given, cwd=tmp_path)

    return run


#: Children save a state after the other, and are killed at a random time; what is found each time is one of the states.
_STORM = """
import random, time
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
