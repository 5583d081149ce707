# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks and launchers that are killed at any moment: the exit code is right, and soon nothing is left."""

import random
import signal
import sys
import time

import pytest

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
#: Exit code and words of the report for each way to fail.
KINDS = {
    "raise": (1, "ended with exit code 1"),
    "exit": (5, "ended with exit code 5"),
    "SIGKILL": (137, "was killed by SIGKILL (out of memory?)"),
    "SIGSEGV": (139, "was killed by SIGSEGV (invalid memory access)"),
    "SIGTERM": (143, "was killed by SIGTERM"),
}
RANKS = 3


@pytest.mark.parametrize("runs", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_a_rank_that_fails_at_any_time_is_named_and_leaves_nothing(start, runs: int) -> None:
    chance = random.Random(runs)
    for _ in range(runs):
        victim, kind, after = chance.randrange(RANKS), chance.choice(sorted(KINDS)), chance.random()
        more = {"VICTIM": str(victim), "KIND": kind, "AFTER": str(after)}
        launch = start((sys.executable, "-S", "-c", RANK), ranks=RANKS, more=more, grace=2.0)
        code, words = KINDS[kind]
        assert launch.wait() == code, (more, launch.err)
        assert f"accel launch: rank {victim} on localhost {words}" in launch.err, (more, launch.err)
        assert launch.err.count("; its last lines:") == 1
        assert launch.gone_within(60), (more, launch.alive())


@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_nothing_is_left_of_a_launcher_that_is_killed_at_any_time(start, runs: int) -> None:
    chance = random.Random(runs)
    # Under nohup a launcher ignores it, as it shall.
    hang_up = signal.SIGTERM if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else signal.SIGHUP
    for _ in range(runs):
        launch = start((sys.executable, "-S", "-c", RANK), ranks=RANKS, more={"VICTIM": "none"})
        time.sleep(1.5 * chance.random())
        launch.process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, hang_up]))
        assert launch.wait() != 0
        assert launch.gone_within(60), launch.alive()
