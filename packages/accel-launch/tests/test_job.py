# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a job tells its ranks: where the store listens, and the secret."""

from __future__ import annotations

import pytest

from accel_core import env
from accel_launch.job import Job
from accel_launch.plan import Host, MemoryPolicy, Plan, Program, Rank


def _plan(*hosts: str, address: str = "127.0.0.1") -> Plan:
    made = (
        Host(name, number, (Rank(number, 0, 0, "", (), 0, (), MemoryPolicy(), {}),))
        for number, name in enumerate(hosts)
    )
    return Plan(tuple(made), address, 29500, Program(("x",)), "/")


def _given(plan: Plan) -> list[tuple[str, str | None]]:
    job = Job(plan, secret="s")
    assigned = [job.assignment(host, rank).environment for host, rank in plan.ranks()]
    return [(each[env.STORE_ADDRESS.name], each.get(env.JOB_SECRET.name)) for each in assigned]


def test_ranks_of_one_launcher_have_a_secret_and_those_of_several_have_none() -> None:
    assert _given(_plan("localhost")) == [("127.0.0.1", "s")]
    assert _given(_plan("a", "b", address="192.0.2.1")) == [("192.0.2.1", None), ("", None)]
    assert Job(_plan("a")).secret != Job(_plan("a")).secret
    assert len(Job(_plan("a")).secret) == 64


def test_a_name_may_have_another_address_elsewhere_so_all_interfaces_are_listened_on() -> None:
    assert _given(_plan("a", "b", address="a.example")) == [("", None), ("", None)]


def test_the_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, "s3cret")
    assert env.JOB_SECRET.shown() == "(secret)"
    assert "s3cret" not in repr(Job(_plan("a"), secret="s3cret"))
