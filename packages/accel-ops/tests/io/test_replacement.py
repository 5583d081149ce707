# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A save that does not succeed leaves the former file, and no other: by an error, or a killed process."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from accel_ops import io
from accel_ops.io import session as sessions
from accel_ops.io.files import Replacement

Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: Children save a state after the other, and are killed at a random time; what is found each time is one of the states.
_STORM = """
import os, random, signal, sys, time, torch
from accel_ops import io
folder, kills = sys.argv[1], int(sys.argv[2])
path, draw = folder + "/file", random.Random(kills)

def state(number):
    return {str(name): torch.full((200_000 + 7 * name,), number) for name in range(2 + number % 3)}

io.save(state(0), path)
last = 0
advances = leftovers = 0
for _ in range(kills):
    child = os.fork()
    if not child:
        number = last
        while True:
            number += 1
            io.save(state(number), path)
    time.sleep(draw.uniform(0, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = io.load(path)
    number = int(found["0"][0])
    wanted = state(number)
    assert number >= last and found.keys() == wanted.keys(), (number, last, list(found))
    assert all(torch.equal(found[name], wanted[name]) for name in wanted), number
    others = [name for name in os.listdir(folder) if name != "file"]
    assert others in ([], [".file.part"]), others
    advances, leftovers, last = advances + (number > last), leftovers + len(others), number
io.save(state(1), path)
assert os.listdir(folder) == ["file"]
print(advances, leftovers)
"""


def storm(run_program: Run, folder: Path, kills: int) -> tuple[int, int]:
    """Kill savers; returns how many had saved something, and how many left a temporary file."""
    (folder / "saved").mkdir()
    ended = run_program(_STORM, folder / "saved", kills)
    assert ended.returncode == 0, ended.stderr
    advances, leftovers = map(int, ended.stdout.split())
    return advances, leftovers


@pytest.mark.parametrize(("kills", "least"), [(8, 0), pytest.param(200, 21, marks=pytest.mark.slow)])
def test_killed_processes_leave_the_former_state_or_the_new_one(
    run_program: Run, tmp_path: Path, kills: int, least: int
) -> None:
    assert min(storm(run_program, tmp_path, kills)) >= least


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
