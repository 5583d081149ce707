# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of file I/O: engines, sessions, and programs in child processes."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from accel_core import processes
from accel_ops.host import library
from accel_ops.io.engines import EngineOptions
from accel_ops.io.session import Session

ENGINES = ("uring", "threads", "python")
Run = Callable[..., str]


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
from accel_ops.io.engines import EngineOptions, open_engine
from accel_ops.io.session import Session
path = sys.argv[1]
"""


@pytest.fixture
def run_program(tmp_path: Path) -> Run:
    """Run Python source in a child process: `run_program(source, engine)` returns what it prints; its end has to be 0.

    What `_IMPORTS` has is there; `path` is `tmp_path / "file"`.
    """

    def run(source: str, engine: str = "", prefix: Sequence[str] = ()) -> str:
        script = tmp_path / "program.py"
        script.write_text(_IMPORTS + textwrap.dedent(source), encoding="utf-8")
        command = [*prefix, sys.executable, str(script), str(tmp_path / "file")]
        # The library compiles once, here, and not in each child with an empty cache.
        given = {**os.environ, "OMP_NUM_THREADS": "1", "ACCEL_IO_ENGINE": engine}
        ended = processes.run(command, 300, env=given, cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
        return ended.stdout

    return run
