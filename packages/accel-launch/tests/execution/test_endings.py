# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""However a launcher ends, nothing of its job is left; signals reach each rank's process group."""

import os
import signal
import subprocess
import time

import pytest

#: A rank with a child in its group, one in a session of its own, and one whose parent has ended.
FAMILY = "sleep 301 & setsid sleep 302 & (setsid sleep 303 &) ; echo yes > up$RANK; "


def test_what_a_rank_leaves_behind_is_ended(start) -> None:
    launch = start(FAMILY + "exit 0")
    assert launch.wait() == 0
    assert not launch.alive()


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM INT HUP; "])
def test_nothing_is_left_when_the_launcher_is_killed(start, stubborn: str) -> None:
    launch = start(stubborn + FAMILY + "wait; sleep 300")
    launch.up()
    assert len(launch.alive()) >= 8
    launch.process.kill()
    launch.wait()
    assert launch.gone_within(60)


def test_nothing_is_left_when_launcher_and_guards_are_killed(start) -> None:
    launch = start("echo yes > up$RANK; exec sleep 300", ranks=1)
    launch.file("up0")
    guards = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(launch.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    for pid in [launch.process.pid, *map(int, guards)]:
        os.kill(pid, signal.SIGKILL)
    launch.wait()
    assert launch.gone_within(60)


def test_a_signal_reaches_the_whole_process_group_of_each_rank(start) -> None:
    child = "sh -c 'trap \"echo child > child$RANK; exit\" TERM; echo > in$RANK; sleep 300 & wait' & "
    launch = start(
        child + "trap 'echo rank > rank$RANK; wait; exit 0' TERM; echo > up$RANK; wait; sleep 300", grace=60
    )
    for rank in (0, 1):
        launch.file(f"in{rank}"), launch.file(f"up{rank}")
    launch.process.terminate()
    assert launch.wait() == 128 + signal.SIGTERM
    assert [launch.file(f"rank{rank}") for rank in (0, 1)] == ["rank\n"] * 2
    assert [launch.file(f"child{rank}") for rank in (0, 1)] == ["child\n"] * 2
    assert "stopped by SIGTERM" in launch.err
    assert not launch.alive()


def test_ranks_have_the_grace_period_to_end_after_an_interrupt(start) -> None:
    launch = start(
        "trap 'sleep 1; echo saved > saved$RANK; exit 0' INT; echo > up$RANK; sleep 300 & wait; wait",
        grace=60,
    )
    launch.up()
    launch.process.send_signal(signal.SIGINT)
    assert launch.wait() == 128 + signal.SIGINT
    assert (launch.file("saved0"), launch.file("saved1")) == ("saved\n", "saved\n")


def test_ranks_that_ignore_a_signal_are_killed_after_the_grace_period(start) -> None:
    launch = start("trap '' TERM INT; echo > up$RANK; while :; do sleep 0.1; done", grace=0.5)
    launch.up()
    launch.process.terminate()
    assert launch.wait() == 128 + signal.SIGTERM
    assert not launch.alive()


def test_a_second_interrupt_kills_at_once(start) -> None:
    launch = start("trap 'echo > got$RANK' TERM INT; echo > up$RANK; while :; do sleep 0.1; done", grace=1000)
    launch.up()
    launch.process.send_signal(signal.SIGINT)
    launch.file("got0"), launch.file("got1")  # two signals that nobody has taken yet would be one
    launch.process.send_signal(signal.SIGINT)
    assert launch.wait() == 128 + signal.SIGINT
    assert not launch.alive()


def test_the_exit_code_that_a_rank_chose_when_stopped_is_the_launcher_s(start) -> None:
    launch = start("trap 'exit 9' TERM; echo > up$RANK; while :; do sleep 0.1; done")
    launch.up()
    launch.process.terminate()
    assert launch.wait() == 9


def test_other_signals_are_passed_on_and_stop_nothing(start) -> None:
    launch = start("trap 'echo got > got$RANK; exit 0' USR1; echo > up$RANK; while :; do sleep 0.1; done")
    launch.up()
    launch.process.send_signal(signal.SIGUSR1)
    assert launch.wait() == 0
    assert launch.file("got0") == "got\n"


def test_ranks_end_when_nobody_reads_their_output(start) -> None:
    reading, writing = os.pipe()
    launch = start("while echo line; do :; done", ranks=1, stdout=writing)
    os.close(writing)
    os.read(reading, 100)
    os.close(reading)
    assert launch.wait() != 0
    assert not launch.alive()


def test_a_launcher_under_nohup_outlives_its_terminal(start) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launch = start("echo > up; until [ -e go ]; do sleep 0.05; done", ranks=1)
    finally:
        signal.signal(signal.SIGHUP, former)
    launch.file("up")
    launch.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    (launch.folder / "go").touch()
    assert launch.wait() == 0
