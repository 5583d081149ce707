# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan as JSON and back; what a job adds for its ranks."""

import json
from dataclasses import replace

import pytest

from accel_core import env
from accel_launch.errors import InvalidPlan
from accel_launch.job import Job
from accel_launch.plan import Binding, Host, MemoryPolicy, Plan, Program, Rank


def rank(number: int, local: int) -> Rank:
    return Rank(
        rank=number,
        local_rank=local,
        slot=local,
        device=f"GPU-{local}",
        cpus=(3, 4) if local else (0, 1, 2, 8),
        cores=3,
        numa_nodes=(0, 1),
        memory=MemoryPolicy("bind", (0,)),
        environment={"RANK": str(number), "TEXT": "two words; $(x) \u00e9"},
    )


PLAN = Plan(
    hosts=(Host("worker-0", 0, (rank(0, 0), rank(1, 1)), unused=(9,)), Host("me@[::1]", 1, (rank(2, 0),))),
    master_addr="worker-0",
    master_port=29500,
    program=Program(("python", "-u", "train.py"), ("--lr", "1")),
    directory="/work",
    binding=Binding("0-3"),
    exports={"PATH": "/bin"},
    notes=("one note",),
)


def test_a_plan_is_the_same_after_json() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Plan.from_json(replace(PLAN, binding=None).to_json()).binding is None
    assert json.loads(PLAN.to_json())["hosts"][0]["ranks"][0]["cpus"] == "0-2,8"


def test_another_master_is_in_the_environment_of_each_rank() -> None:
    moved = PLAN.with_master("10.0.0.1", 4000)
    assert (moved.master_addr, moved.master_port) == ("10.0.0.1", 4000)
    for _, rank in moved.ranks():
        assert (rank.environment["MASTER_ADDR"], rank.environment["MASTER_PORT"]) == ("10.0.0.1", "4000")
        assert rank.environment["RANK"] == str(rank.rank)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1" * 5000, "[" * 100_000, '"\\ud800"'])
def test_what_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidPlan, match="ACC-605"):
        Plan.from_json(text, "plan.json")


_RANK = ("hosts", 0, "ranks", 1)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("version",), 2, "plan.version"),
        (("master_port",), "29500", "plan.master_port"),
        (("master_port",), 70000, "plan.master_port"),
        (("master_port",), True, "plan.master_port"),
        (("master_addr",), "a;b", "plan.master_addr"),
        (("shell",), "rm", "shell"),
        (("hosts",), [], "plan.hosts"),
        (("program", "command"), [], "plan.program.command"),
        (("program", "command"), ["a\0b"], "plan.program.command"),
        (("program", "arguments"), ["\ud800"], "plan.program.arguments[0]"),
        (("exports", "A;rm"), "1", "A;rm"),
        (("exports", "TEXT"), "\ud800", "exports.TEXT"),
        (("binding", "reserve_cores"), -1, "reserve_cores: -1"),
        (("hosts", 0, "name"), "-oProxyCommand=x", "ProxyCommand"),
        (("hosts", 0, "name"), "a b", "a b"),
        (("hosts", 1, "name"), "you@worker-0", "a machine twice"),
        (("hosts", 1, "node_rank"), 0, "hosts[1]"),
        ((*_RANK, "rank"), 0, "global ranks"),
        ((*_RANK, "local_rank"), 2, "local ranks"),
        ((*_RANK, "cpus"), [0], "cpus"),
        ((*_RANK, "cpus"), "3-1", "cpus"),
        ((*_RANK, "slot"), -1, "slot -1"),
        ((*_RANK, "memory", "mode"), "interleave", "memory.mode"),
        ((*_RANK, "environment", "RANK"), "17", "RANK='17'"),
        ((*_RANK, "environment", "WORLD_SIZE"), "-4", "WORLD_SIZE='-4'"),
        ((*_RANK, "environment", "A=B"), "1", "A=B"),
        ((*_RANK, "environment", "A"), "\0", "environment.A"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_by_the_name_of_the_field(
    path: tuple[str | int, ...], value: object, named: str
) -> None:
    data = place = json.loads(PLAN.to_json())
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InvalidPlan) as caught:
        Plan.from_json(json.dumps(data), "plan.json")
    assert named in caught.value.found
    assert "plan.json" in caught.value.what


@pytest.mark.parametrize(
    ("hosts", "address", "given"),
    [
        (["localhost"], "127.0.0.1", [("127.0.0.1", "s")]),
        # Each of several hosts may have its own launcher.
        (["a", "b"], "192.0.2.1", [("192.0.2.1", None), ("", None)]),
        # A name may have another address elsewhere, so all interfaces are listened on.
        (["a", "b"], "a.example", [("", None), ("", None)]),
    ],
)
def test_where_the_store_listens_and_the_secret_of_ranks_of_one_launcher(
    hosts: list[str], address: str, given: list[tuple[str, str | None]]
) -> None:
    made = tuple(Host(name, number, (Rank(number, 0, 0),)) for number, name in enumerate(hosts))
    job = Job(replace(PLAN, hosts=made, master_addr=address), secret="s")
    seen = [job.assignment(host, rank).environment for host, rank in job.plan.ranks()]
    assert [(each[env.STORE_ADDRESS.name], each.get(env.JOB_SECRET.name)) for each in seen] == given


def test_the_secret_is_long_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Job(PLAN).secret != Job(PLAN).secret
    assert len(Job(PLAN).secret) == 64
    monkeypatch.setenv(env.JOB_SECRET.name, "s3cret")
    assert env.JOB_SECRET.shown() == "(secret)"
    assert "s3cret" not in repr(Job(PLAN, secret="s3cret"))
