# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a forked child keeps and how it ends reaches the parent; a child that hangs is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_testkit.mutation.forks import Done, Forks, Steps, Task

Work = Callable[[Path, Callable[[Any], None]], None]


def steps(*works: Work, limit: float = 60.0) -> Steps[list[Done]]:
    found = []
    for work in works:
        found.append((yield Task(work, limit)))
    return found


def one(work: Work, limit: float = 60.0) -> Done:
    ((done,),) = Forks(1).run([steps(work, limit=limit)])
    return done


def test_messages_of_a_child_arrive() -> None:
    def work(folder: Path, keep: Callable[[Any], None]) -> None:
        keep(1)
        keep({"a": "line\n"})

    assert one(work) == Done([1, {"a": "line\n"}])


def test_signal_is_named_and_what_was_kept_before_stays() -> None:
    def work(folder: Path, keep: Callable[[Any], None]) -> None:
        keep("begun")
        os.kill(os.getpid(), signal.SIGSEGV)

    assert one(work) == Done(["begun"], "ended by signal 11")


def test_exception_is_an_end_of_its_own() -> None:
    def work(folder: Path, keep: Callable[[Any], None]) -> None:
        raise ValueError

    assert one(work).ended == "ended with 1"


def test_child_that_hangs_is_killed_with_what_it_started() -> None:
    def work(folder: Path, keep: Callable[[Any], None]) -> None:
        keep(os.getpid())
        started = os.fork()
        if started:
            keep(started)
        time.sleep(600)

    done = one(work, limit=5.0)
    assert "did not end" in done.ended
    child, started = done.messages
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    until = time.monotonic() + 30
    while time.monotonic() < until and _runs(started):
        time.sleep(0.02)
    assert not _runs(started)


def _runs(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_folder_of_a_child_is_removed() -> None:
    def work(folder: Path, keep: Callable[[Any], None]) -> None:
        (folder / "file").write_text("")
        keep(str(folder))

    assert not Path(one(work).messages[0]).exists()


def test_steps_follow_each_other_and_several_run_at_a_time(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def wait(folder: Path, keep: Callable[[Any], None]) -> None:
        keep(os.read(reading, 1).decode())

    def wake(folder: Path, keep: Callable[[Any], None]) -> None:
        os.write(writing, b"x")

    # Alone, the first one would wait for ever.
    results = list(Forks(2).run([steps(wait), steps(wake, wake)]))
    assert [len(found) for found in results].count(2) == 1
    assert [Done(["x"])] in results


def test_result_without_a_task_needs_no_child() -> None:
    assert list(Forks(1).run([steps(), steps()])) == [[], []]
