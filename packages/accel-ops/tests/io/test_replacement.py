# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A save that does not succeed leaves the former file, and no other: by an error, or a killed process."""

import errno
import os
from pathlib import Path

import pytest
import torch

from accel_ops import io
from accel_ops.io import session as sessions
from accel_ops.io.files import Replacement

from .conftest import Run, storm

_SAVER = """
from accel_ops import io
path = folder + "/file"

def state(number):
    return {str(name): torch.full((200_000 + 7 * name,), number) for name in range(2 + number % 3)}

def save(number):
    io.save(state(number), path)

def found(kill):
    loaded = io.load(path)
    wanted = state(int(loaded["0"][0]))
    assert loaded.keys() == wanted.keys(), list(loaded)
    assert all(torch.equal(loaded[name], wanted[name]) for name in wanted)
    assert {*os.listdir(folder)} <= {"file", ".file.part"}, os.listdir(folder)
    return int(loaded["0"][0])
"""


@pytest.mark.parametrize(("kills", "least"), [(8, 0), pytest.param(200, 21, marks=pytest.mark.slow)])
def test_killed_processes_leave_the_former_state_or_the_new_one(
    run_program: Run, tmp_path: Path, kills: int, least: int
) -> None:
    assert min(storm(run_program, _SAVER, 0.15, tmp_path, kills)) >= least


def test_a_limit_of_the_file_size_leaves_the_former_file(
    run_program: Run, tmp_path: Path, engine: str
) -> None:
    ended = run_program(
        """
        import os, resource, sys, torch
        from accel_ops import io
        folder = sys.argv[1] + "/saved"
        os.mkdir(folder)
        io.save({"a": torch.ones(3)}, folder + "/file")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            io.save({str(name): torch.zeros(100_000) for name in range(9)}, folder + "/file")
        except OSError as error:
            print(error.errno, os.listdir(folder), io.load(folder + "/file")["a"].tolist())
        """,
        tmp_path,
        ACCEL_IO_ENGINE=engine,
    )
    assert ended.stdout == f"{errno.EFBIG} ['file'] [1.0, 1.0, 1.0]\n", ended.stderr


def test_an_exception_of_the_progress_function_ends_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_INTERVAL", 0)
    io.save({"a": torch.ones(3)}, tmp_path / "file")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        io.save({str(name): torch.zeros(1_000_000) for name in range(9)}, tmp_path / "file", progress=stop)
    assert os.listdir(tmp_path) == ["file"]
    assert torch.equal(io.load(tmp_path / "file")["a"], torch.ones(3))


def test_a_temporary_file_that_is_removed_meanwhile_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("former")
    with Replacement(path) as new:
        os.unlink(new.name)
        Path(new.name).write_text("another's")
        with pytest.raises(FileNotFoundError, match="removed"):
            new.replace()
    assert path.read_text() == "former"
