# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank fails: which one is named, with which exit code, and what becomes of the others."""

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
    ("end", "code", "words"),
    [
        ("kill -KILL $$", 137, "was killed by SIGKILL (out of memory?)"),
        ("kill -SEGV $$", 139, "was killed by SIGSEGV (invalid memory access)"),
        ("exit 139", 139, "ended with exit code 139 (128 + SIGSEGV)"),
        ("exit 5", 5, "ended with exit code 5"),
        # A killed guard is a killed rank.
        ("sleep 300 & sleep 0.3; kill -9 $PPID; sleep 300", 137, "was killed by SIGKILL (out of memory?)"),
    ],
)
def test_a_rank_that_says_nothing_is_named_with_its_end(start, end: str, code: int, words: str) -> None:
    launch = start(only(0, end))
    assert launch.wait() == code
    assert launch.err == f"accel launch: rank 0 on localhost {words}\n"
    assert launch.gone_within(60)


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


@pytest.mark.parametrize(
    ("command", "cpus", "code", "words"),
    [(("/no/such/program",), (), 127, "cannot start /no/such/program"), (("true",), (1023,), 1, "ACC-612")],
)
def test_a_rank_that_cannot_be_started_is_reported(
    start, command: tuple[str, ...], cpus: tuple[int, ...], code: int, words: str
) -> None:
    launch = start(command, ranks=1, cpus=cpus)
    assert launch.wait() == code
    assert f"rank 0 on localhost ended with exit code {code}" in launch.err
    assert words in launch.err


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
