# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A child that answers questions: it can be waited for without harm, and is ended with all it started."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from accel_core.cli.child import Worker

ANSWERS = """
import os
import time

from accel_core.cli.child import serve


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


def test_who_waits_is_called_while_the_child_is_at_work(worker: Worker, tmp_path: Path) -> None:
    passed: list[float] = []

    def waiting(seconds: float) -> None:
        passed.append(seconds)
        (tmp_path / "go").touch()

    worker.send("until", str(tmp_path / "go"))
    first = worker.receive(60, waiting)
    assert 0 < passed[0] < 60
    assert first.answer == worker.ask(60, "until", str(tmp_path / "go")).answer
    assert not first.failure


def test_a_crash_comes_with_the_line_ahead_of_faulthandler_s_and_with_all_that_was_printed(
    worker: Worker,
) -> None:
    worker.ask(60, "say", "of another question\n")
    reply = worker.ask(60, "abort", "one\n  two \n\n")
    assert (reply.answer, reply.failure, reply.last_line) == ({}, "died by SIGABRT", "two")
    assert reply.output.startswith("of another question\none\n  two")
    assert "Fatal Python error" in reply.output


def test_what_was_printed_for_another_question_is_not_the_last_line(worker: Worker) -> None:
    worker.ask(60, "say", "of another question\n")
    assert worker.ask(60, "abort", "").last_line == ""


def test_a_child_that_hangs_is_killed_when_its_time_is_up(worker: Worker, tmp_path: Path) -> None:
    reply = worker.ask(0.01, "until", str(tmp_path / "go"))
    assert (reply.answer, reply.failure) == ({}, "did not answer within 0.01 s")


def test_what_a_child_started_ends_with_it(worker: Worker, tmp_path: Path) -> None:
    assert worker.ask(60, "fork", str(tmp_path / "lock")).failure == "ended its process with status 7"
    with (tmp_path / "lock").open("r+") as lock:
        os.lockf(lock.fileno(), os.F_LOCK, 0)  # waits for the end of the other process
        assert lock.read() == ""
