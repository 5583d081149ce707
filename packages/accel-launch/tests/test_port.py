# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The port of rank 0: two launchers of one host that were told none get one each."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from accel_launch import command
from accel_launch.options import Options
from accel_launch.plan import Host, MemoryPolicy, Plan, Program, Rank

GIVEN = Options(script="x")


@pytest.fixture(autouse=True)
def default(monkeypatch: pytest.MonkeyPatch) -> int:
    """A default port of the tests: other jobs of this machine use the real one."""
    # One of those that the system gives nobody who asks for any; processes begin to look at different ones.
    for number in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind(("", number))
            break
    monkeypatch.setattr(command, "DEFAULT_PORT", number)
    monkeypatch.setattr(command, "_TRIED", range(number, number + 1))
    return number


def plan(number: int) -> Plan:
    rank = Rank(0, 0, 0, "", (), 0, (), MemoryPolicy(), {"MASTER_PORT": str(number)})
    return Plan((Host("localhost", 0, (rank,)),), "127.0.0.1", number, Program(("x",)), "/")


def listen(number: int) -> socket.socket:
    """What torch's store does."""
    made = socket.socket(socket.AF_INET6)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("::", number))
    made.listen()
    return made


def test_the_second_launcher_takes_another_port_before_the_first_rank_listens(
    default: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        command.chosen_port(plan(default), GIVEN) as first,
        command.chosen_port(plan(default), GIVEN) as second,
    ):
        assert first.master_port == default
        assert second.master_port != default
        assert second.hosts[0].ranks[0].environment["MASTER_PORT"] == str(second.master_port)
        for number in (first.master_port, second.master_port):
            listen(number).close()
    said = f"accel launch: port {default} is in use, so rank 0 listens on port {second.master_port}\n"
    assert capfd.readouterr() == ("", said)


def test_a_port_where_somebody_listens_is_passed_over_without_a_word_if_quiet(
    default: int, capfd: pytest.CaptureFixture[str]
) -> None:
    quiet = Options(script="x", log_level="error")
    with listen(default), command.chosen_port(plan(default), quiet) as moved:
        assert moved.master_port != default
    assert capfd.readouterr() == ("", "")


def test_the_port_is_free_again_when_the_job_has_ended(default: int) -> None:
    for _ in range(3):
        with command.chosen_port(plan(default), GIVEN) as made:
            assert made.master_port == default


@pytest.mark.parametrize(
    "given",
    [{"master_port": 4000}, {"plan": "plan.json", "script": None}, {"elastic_training": True}],
    ids=["--master_port", "--plan", "--elastic_training"],
)
def test_a_port_that_somebody_has_named_stays(default: int, given: dict[str, object]) -> None:
    assert command.is_port_free_to_choose(plan(default), GIVEN)
    assert not command.is_port_free_to_choose(plan(default), Options(**{"script": "x", **given}))  # type: ignore[arg-type]
