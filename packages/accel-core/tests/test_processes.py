# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Children end with all that they started, whatever ends them; workers reply, or say how they ended."""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired
from typing import Any

import pytest

from accel_core import processes
from accel_core.processes import Worker, run, run_module

#: Starts a process that holds a lock, in the group or in a session of its own, and says so.
FORKS = """
import os, signal, sys, time
if os.fork() == 0:
    if sys.argv[2] == "session":
        os.setsid()
    os.lockf(os.open("lock", os.O_CREAT | os.O_RDWR), os.F_LOCK, 0)
    open("held", "w").close()
    time.sleep(600)
while not os.path.exists("held"):
    time.sleep(0.01)
"""


def forks(then: str, place: str, folder: Path, **options: Any) -> None:
    command = [sys.executable, "-c", FORKS + then, "--", place]
    try:
        run(command, cwd=folder, **options)
    finally:
        with (folder / "lock").open("r+") as lock:
            os.lockf(lock.fileno(), os.F_LOCK, 0)  # waits for the end of the other process


def test_outputs_are_kept_apart_or_together() -> None:
    code = "import os; os.write(1, os.read(0, 9)); os.write(2, b'err\\xff'); os._exit(3)"
    done = run([sys.executable, "-c", code], input="in")
    assert (done.returncode, done.stdout, done.stderr) == (3, "in", "err\ufffd")
    done = run([sys.executable, "-c", code], stderr=STDOUT)
    assert (done.stdout, done.stderr) == ("err\ufffd", "")


def test_group_ends_with_a_child_that_ends(tmp_path: Path) -> None:
    forks("", "group", tmp_path, start_new_session=True)


@pytest.mark.parametrize("options", [{}, {"start_new_session": True}])
@pytest.mark.parametrize("place", ["group", "session"])
def test_children_end_at_the_time_limit(options: dict[str, Any], place: str, tmp_path: Path) -> None:
    then = "print('out', flush=True); open('printed', 'w').close(); time.sleep(600)"
    begun = [tmp_path / "held", tmp_path / "printed"]
    with pytest.raises(
        TimeoutExpired
    ) as caught:  # the limit begins when the lock is held and the line is out
        forks(
            then, place, tmp_path, timeout=0, tick=lambda: all(map(Path.exists, begun)) or object(), **options
        )
    assert caught.value.output == "out\n"


def test_progress_restarts_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ticks = itertools.count(), iter([1, 2, 3])
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(clock))
    with pytest.raises(TimeoutExpired):
        run([sys.executable, "-c", "import time; time.sleep(600)"], 1.5, lambda: next(ticks, 3))
    assert next(ticks, None) is None


@pytest.mark.parametrize("seconds", [0, 60])
def test_ctrl_c_gives_a_grace_period(seconds: int, tmp_path: Path) -> None:
    def tick() -> None:
        if (tmp_path / "ready").exists():
            raise KeyboardInterrupt

    # A shell's background jobs ignore SIGINT; signal.pause() misses a signal that arrives just before it.
    wait = """
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    open('ready', 'w').close()
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    open('ended', 'w').close()
"""
    with pytest.raises(KeyboardInterrupt):
        forks(wait, "group", tmp_path, tick=tick, grace=seconds, start_new_session=True)
    assert (tmp_path / "ended").exists() == bool(seconds)


ANSWERS = """
import os
import time

from accel_core.processes import serve


def until(path):
    while not os.path.exists(path):
        time.sleep(0.02)
    return {"pid": os.getpid()}


def say(text):
    os.write(2, text.encode())
    return {}


def abort(text):
    say(text)
    os.abort()


def fork(lock):
    held = os.open(lock, os.O_CREAT | os.O_RDWR)
    read, write = os.pipe()
    if os.fork() == 0:
        os.lockf(held, os.F_LOCK, 0)
        os.write(write, b".")
        time.sleep(60)
        os.write(held, b"alive")
        os._exit(0)
    os.read(read, 1)
    os._exit(7)


serve({handler.__name__: handler for handler in (until, say, abort, fork)})
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "toy_answers.py").write_text(ANSWERS)
    worker = Worker("-m", "toy_answers", PYTHONPATH=str(tmp_path))
    yield worker
    worker.close()


def test_worker_crash_has_last_line_and_output(worker: Worker) -> None:
    worker.ask(60, "say", "of another question\n")
    reply = worker.ask(60, "abort", "one\n  two \n\n")
    assert (reply.answer, reply.failure, reply.last_line) == ({}, "died by SIGABRT", "two")
    assert reply.output.startswith("of another question\none\n  two")
    assert "Fatal Python error" in reply.output


def test_worker_last_line_is_of_the_request(worker: Worker) -> None:
    worker.ask(60, "say", "of another question\n")
    assert worker.ask(60, "abort", "").last_line == ""


def test_worker_that_hangs_is_killed(worker: Worker, tmp_path: Path) -> None:
    reply = worker.ask(0.01, "until", str(tmp_path / "go"))
    assert (reply.answer, reply.failure) == ({}, "did not answer within 0.01 s")


def test_worker_ends_with_its_children(worker: Worker, tmp_path: Path) -> None:
    assert worker.ask(60, "fork", str(tmp_path / "lock")).failure == "ended its process with status 7"
    with (tmp_path / "lock").open("r+") as lock:
        os.lockf(lock.fileno(), os.F_LOCK, 0)  # waits for the end of the other process
        assert lock.read() == ""


def test_real_time_signal_has_a_number() -> None:
    assert Worker("-c", "import os; os.kill(os.getpid(), 40)").receive(300).failure == "died by signal 40"


def test_run_module_ignores_working_folder(tmp_path):
    for name in ("calendar", "runpy", "datetime"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')\n")
    assert "November 2026" in processes.run((*run_module("calendar"), "2026", "11"), cwd=tmp_path).stdout
