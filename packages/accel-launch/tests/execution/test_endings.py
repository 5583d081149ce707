# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ends of ranks and launchers: first failure, exit code, and no process of the job is left."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from accel_core import processes
from accel_launch import supervisor
from accel_launch.protocol import Message

from .conftest import until

WAIT = "sleep 300"


def only(rank: int, script: str, others: str = WAIT) -> str:
    return f'if [ "$RANK" = {rank} ]; then {script}; else {others}; fi'


@pytest.mark.parametrize(
    ("end", "code", "words", "lines"),
    [
        ("echo first; echo last >&2; exit 7", 7, "ended with exit code 7", ["first", "last"]),
        ("kill -KILL $$", 137, "was killed by SIGKILL (out of memory?)", []),
        ("kill -SEGV $$", 139, "was killed by SIGSEGV (invalid memory access)", []),
        ("exit 139", 139, "ended with exit code 139 (128 + SIGSEGV)", []),
    ],
)
def test_failing_rank_is_named_once(start, end, code, words, lines):
    launch = start(only(1, end))
    assert launch.wait() == code
    last = ["; its last lines:", *(f"\n    {line}" for line in lines)] if lines else []
    assert launch.err.endswith(f"accel launch: rank 1 on localhost {words}{''.join(last)}\n")
    assert launch.err.count("accel launch") == 1
    assert launch.gone_within(60)


@pytest.mark.parametrize(("end", "code", "first"), [("exit 1", 1, 0), ("sleep 300", 4, 1)])
def test_rank_with_traceback_is_waited_for(start, end, code, first):
    # As Python does: the traceback at once, the end after what was running has been torn down.
    until = "until [ -e {} ]; do sleep 0.05; done; "
    failing = "echo 'Traceback (most recent call last):' >&2; " + until.format("closed") + f"sleep 0.5; {end}"
    closing = until.format("go") + "echo 'Connection closed by peer' >&2; echo > closed; exit 4"
    launch = start(only(0, failing, others=closing), slow_end=60 if code == 1 else 3)
    launch.says(b"Traceback")
    (launch.folder / "go").touch()
    assert launch.wait() == code
    assert f"accel launch: rank {first} on localhost ended with exit code {code}" in launch.err
    assert (f"failed after it: rank {1 - first} on localhost" in launch.err) == (code == 1)


@pytest.mark.parametrize(("code", "first"), [(1, 0), (7, 1)])
def test_late_message_keeps_first_failure(code, first):
    ends = supervisor.Ends({0: "here", 1: "here"})
    ends.take(Message("traceback", 0, {}), 10.0)
    ends.take(Message("end", 1, {"code": 4, "age": 0.5}), 11.0)
    ends.take(Message("end", 0, {"code": code, "age": 1.0}), 90.0)
    assert ends.report().startswith(f"rank {first} on here")


@pytest.mark.parametrize(
    ("command", "cpus", "code", "words"),
    [
        (("/no/such/program",), (), 127, "cannot start /no/such/program"),
        (("true",), (1023,), 1, "cannot bind this rank"),
    ],
)
def test_rank_cannot_be_started(start, command, cpus, code, words):
    launch = start(command, ranks=1, cpus=cpus)
    assert launch.wait() == code
    assert f"rank 0 on localhost ended with exit code {code}" in launch.err
    assert words in launch.err


def test_message_in_output_is_text(start):
    launch = start('printf \'\\036x {"kind": "end", "rank": 1, "code": 9}\\n\' >&2', ranks=1)
    assert launch.wait() == 0
    assert '"code": 9' in launch.err


def test_traceback_is_shown_once(start):
    failing = (
        "printf 'Traceback (most recent call last):\\n  File train.py\\nRuntimeError: ' >&2; "
        "head -c 10000 /dev/zero | tr '\\0' x >&2; exit 1"
    )
    launch = start(failing, ranks=1)
    assert launch.wait() == 1
    assert launch.err.count("Traceback") == 1
    assert launch.err.count("File train.py") == 1
    last = launch.err.splitlines()[-1]
    assert last.startswith("    RuntimeError: xxx")
    assert last.endswith("x…")
    assert len(last) < 400


# A launcher that is stopped, or killed


def test_orphans_end_with_their_rank(start):
    orphan = "sleep 30$RANK & setsid sleep 30$RANK & (setsid sleep 30$RANK &) ; "
    launch = start(orphan + only(0, "exit 0", others="echo > up1; until [ -e go ]; do sleep 0.05; done"))
    launch.file("up1")
    assert until(lambda: not any("sleep 300" in command for command in launch.alive().values()))
    assert sum("sleep 301" in command for command in launch.alive().values()) == 3
    (launch.folder / "go").touch()
    assert launch.wait() == 0
    assert not launch.alive()


def test_killed_guard_is_killed_ranks(start):
    launch = start(only(0, "setsid sleep 300 & sleep 0.3; kill -9 $PPID; sleep 300"))
    assert launch.wait() == 137
    assert launch.err.startswith("accel launch: rank 0 on localhost was killed by SIGKILL (out of memory?)\n")
    assert not launch.alive()


def test_killed_launcher_leaves_nothing(start):
    # A child in the group of its rank, one in a session of its own, and one whose parent has ended.
    family = "sleep 301 & setsid sleep 302 & (setsid sleep 303 &) ; echo yes > up$RANK; "
    launch = start(f"trap '' TERM INT HUP; {family} wait; sleep 300")
    launch.up()
    assert len(launch.alive()) >= 8
    launch.process.kill()
    launch.wait()
    assert launch.gone_within(60)


def test_killed_launcher_and_guard_leave_nothing(start):
    launch = start("echo yes > up$RANK; exec sleep 300", ranks=1)
    launch.file("up0")
    ps = ["ps", "-o", "pid=", "--ppid", str(launch.process.pid)]
    guards = subprocess.run(ps, capture_output=True, text=True, check=True).stdout.split()
    for pid in [launch.process.pid, *map(int, guards)]:
        os.kill(pid, signal.SIGKILL)
    launch.wait()
    assert launch.gone_within(60)


def test_signal_reaches_process_groups(start):
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


@pytest.mark.parametrize(
    ("trap", "number", "grace", "code", "files"),
    [
        # A rank that saves has the grace period.
        ("trap 'sleep 1; echo saved > saved$RANK; exit 0' INT", signal.SIGINT, 60, 130, ("saved0", "saved1")),
        ("trap '' TERM INT", signal.SIGTERM, 0.5, 143, ()),
        ("trap 'exit 9' TERM", signal.SIGTERM, 5, 9, ()),
        # It stops nothing.
        ("trap 'echo got > got$RANK; exit 0' USR1", signal.SIGUSR1, 5, 0, ("got0", "got1")),
    ],
)
def test_signals(start, trap, number, grace, code, files):
    launch = start(f"{trap}; echo > up$RANK; while :; do sleep 0.1; done", grace=grace)
    launch.up()
    launch.process.send_signal(number)
    assert launch.wait() == code
    assert all(map(launch.file, files))
    assert not launch.alive()


def test_second_interrupt_kills(start):
    launch = start("trap 'echo > got$RANK' TERM INT; echo > up$RANK; while :; do sleep 0.1; done", grace=1000)
    launch.up()
    launch.process.send_signal(signal.SIGINT)
    launch.file("got0"), launch.file("got1")  # two signals that nobody has taken yet would be one
    launch.process.send_signal(signal.SIGINT)
    assert launch.wait() == 128 + signal.SIGINT
    assert not launch.alive()


def test_unread_output_ends_ranks(start):
    reading, writing = os.pipe()
    launch = start("while echo line; do :; done", ranks=1, streams={"stdout": writing})
    os.close(writing)
    os.read(reading, 100)
    os.close(reading)
    assert launch.wait() != 0
    assert not launch.alive()


def test_nohup(start):
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


# Stress tests

#: A rank with processes as a DataLoader's: some of its group, one in a session of its own.
RANK = """
import os, signal, subprocess, sys, time
commands = [["sleep", "300"], ["sh", "-c", "sleep 300; sleep 300"]]
children = [subprocess.Popen(command, start_new_session=own) for command in commands for own in (False, True)]
print("rank", os.environ["RANK"], "is up", flush=True)
open("up" + os.environ["RANK"], "w").write(str(os.getpid()) + "\\n")
if os.environ["RANK"] == os.environ["VICTIM"]:
    time.sleep(float(os.environ["AFTER"]))
    kind = os.environ["KIND"]
    if kind == "raise":
        raise ValueError("planted")
    if kind == "exit":
        sys.exit(5)
    os.kill(os.getpid(), getattr(signal, kind))
time.sleep(300)
"""
#: Exit code for each way to fail.
KINDS = {"raise": 1, "exit": 5, "SIGKILL": 137, "SIGSEGV": 139, "SIGTERM": 143}
RANKS = 3


@pytest.mark.parametrize("runs", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_failure_at_any_time(start, runs):
    chance = random.Random(runs)
    for _ in range(runs):
        victim, kind, after = chance.randrange(RANKS), chance.choice(sorted(KINDS)), chance.random()
        more = {"VICTIM": str(victim), "KIND": kind, "AFTER": str(after)}
        launch = start((sys.executable, "-S", "-c", RANK), ranks=RANKS, more=more, grace=2.0)
        assert launch.wait() == KINDS[kind], (more, launch.err)
        assert f"accel launch: rank {victim} on localhost " in launch.err, (more, launch.err)
        assert launch.err.count("; its last lines:") == 1
        assert launch.gone_within(60), (more, launch.alive())


@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_launcher_killed_at_any_time(start, runs):
    chance = random.Random(runs)
    # Under nohup a launcher ignores it, as it shall.
    hang_up = signal.SIGTERM if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else signal.SIGHUP
    for _ in range(runs):
        launch = start((sys.executable, "-S", "-c", RANK), ranks=RANKS, more={"VICTIM": "none"})
        time.sleep(1.5 * chance.random())
        launch.process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, hang_up]))
        assert launch.wait() != 0
        assert launch.gone_within(60), launch.alive()


def test_signal_during_start_is_sent_once(tmp_path):
    program = """if True:
        import os, signal
        from accel_launch import guard, protocol
        def bound(cpus):
            while len(both._running) == 2 and not {"up0", "up1"} <= {*os.listdir()}: pass
            if len(both._running) == 2: os.kill(os.getpid(), signal.SIGINT)
        guard.bind_cpus = bound
        os.dup2(os.pipe()[0], 0)  # a parent pipe that does not end
        rank = "trap 'echo > saved$RANK; exit 0' INT; echo > up$RANK; while :; do sleep 0.1; done"
        ranks = [protocol.Assignment(i, ["sh", "-c", rank], {"RANK": str(i)}, "", "", 60.0) for i in (0, 1)]
        both = guard.Guard(ranks, os.environ)
        print(both.run())
    """
    ended = processes.run([sys.executable, "-c", program], 60, cwd=tmp_path)
    assert (ended.stdout, {"saved0", "saved1"} - {*os.listdir(tmp_path)}) == ("0\n", set())
