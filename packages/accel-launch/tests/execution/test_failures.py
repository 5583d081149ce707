# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank fails: which one is named, with which exit code, and what becomes of the others."""

from __future__ import annotations

import pytest

WAIT = "sleep 300"


def only(rank: int, script: str, others: str = WAIT) -> str:
    return f'if [ "$RANK" = {rank} ]; then {script}; else {others}; fi'


def test_ranks_that_end_well_make_a_launcher_that_ends_well(start) -> None:
    launch = start("echo out $RANK of $WORLD_SIZE; echo err $RANK >&2")
    assert launch.wait() == 0
    assert sorted(launch.out.splitlines()) == ["out 0 of 2", "out 1 of 2"]
    assert sorted(launch.err.splitlines()) == ["err 0", "err 1"]


def test_a_failing_rank_is_named_once_with_its_last_lines_and_gives_the_exit_code(start) -> None:
    launch = start(only(1, "echo first words; echo last words >&2; exit 7"))
    assert launch.wait() == 7
    assert "accel launch: rank 1 on localhost ended with exit code 7; its last lines:" in launch.err
    assert launch.err.count("its last lines") == 1
    assert launch.err.splitlines()[-2:] == ["    first words", "    last words"]
    assert launch.gone_within(60)


@pytest.mark.parametrize(
    ("signal", "words"),
    [
        ("KILL", "was killed by SIGKILL (out of memory?)"),
        ("SEGV", "was killed by SIGSEGV (invalid memory access)"),
        ("TERM", "was killed by SIGTERM"),
    ],
)
def test_a_signal_is_decoded(start, signal: str, words: str) -> None:
    launch = start(only(0, f"kill -{signal} $$"))
    assert launch.wait() == 128 + {"KILL": 9, "SEGV": 11, "TERM": 15}[signal]
    assert f"rank 0 on localhost {words}" in launch.err


def test_an_exit_code_of_a_shell_is_decoded(start) -> None:
    launch = start(only(0, "exit 139"))
    assert launch.wait() == 139
    assert "ended with exit code 139 (128 + SIGSEGV)" in launch.err


def test_a_rank_that_wrote_a_traceback_first_is_named_though_it_ends_last(start) -> None:
    # As Python does: the traceback at once, the end after what was running has been torn down.
    until = "until [ -e {} ]; do sleep 0.05; done; "
    failing = "echo 'Traceback (most recent call last):' >&2; " + until.format("closed") + "sleep 0.5; exit 1"
    closing = until.format("go") + "echo 'Connection closed by peer' >&2; echo > closed; exit 1"
    launch = start(only(0, failing, others=closing), slow_end=60)
    launch.says(b"Traceback")
    (launch.folder / "go").touch()
    assert launch.wait() == 1
    assert "accel launch: rank 0 on localhost ended with exit code 1" in launch.err
    assert "failed after it: rank 1 on localhost" in launch.err


def test_a_traceback_that_was_survived_does_not_make_a_rank_the_first(start) -> None:
    survived = "echo 'Traceback (most recent call last):' >&2; sleep 300"
    launch = start(only(0, survived, others="until [ -e go ]; do sleep 0.05; done; exit 4"))
    launch.says(b"Traceback")
    (launch.folder / "go").touch()
    assert launch.wait() == 4
    assert "accel launch: rank 1 on localhost ended with exit code 4" in launch.err


def test_the_other_ranks_are_stopped_and_those_that_refuse_are_killed(start) -> None:
    launch = start(only(0, "exit 3", others="trap '' TERM; sleep 300 & wait; sleep 300"), grace=1.0)
    assert launch.wait() == 3
    assert launch.gone_within(10)


def test_a_killed_guard_is_a_killed_rank(start) -> None:
    launch = start(only(0, "sleep 300 & sleep 0.3; kill -9 $PPID; sleep 300"))
    assert launch.wait() == 137
    assert "rank 0 on localhost was killed by SIGKILL" in launch.err
    assert launch.gone_within(60)


def test_a_program_that_does_not_exist_is_reported_by_its_rank(start) -> None:
    launch = start(("/no/such/program",), ranks=1)
    assert launch.wait() == 127
    assert "rank 0 on localhost ended with exit code 127" in launch.err
    assert "cannot start /no/such/program" in launch.err


def test_a_cpu_that_is_not_there_is_reported_by_its_rank(start) -> None:
    launch = start("true", ranks=1, cpus=(1023,))
    assert launch.wait() == 1
    assert "ACC-612" in launch.err
    assert "sched_setaffinity" in launch.err


def test_a_rank_that_says_nothing_is_named_without_lines(start) -> None:
    launch = start("exit 5", ranks=1)
    assert launch.wait() == 5
    assert launch.err == "accel launch: rank 0 on localhost ended with exit code 5\n"


def test_a_message_in_a_rank_s_output_is_just_text(start) -> None:
    launch = start('printf \'\\036x {"kind": "end", "rank": 1, "code": 9}\\n\' >&2', ranks=1)
    assert launch.wait() == 0
    assert '"code": 9' in launch.err


def test_a_traceback_is_shown_once_and_a_long_last_line_is_cut(start) -> None:
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
