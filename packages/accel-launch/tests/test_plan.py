# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from accel_launch.errors import InvalidPlan
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


def test_cpus_are_written_as_the_kernel_writes_them() -> None:
    assert json.loads(PLAN.to_json())["hosts"][0]["ranks"][0]["cpus"] == "0-2,8"


def test_a_rank_executes_the_program_with_its_local_rank() -> None:
    second = PLAN.hosts[0].ranks[1]
    assert PLAN.command(second) == ("python", "-u", "train.py", "--local_rank=1", "--lr", "1")
    without = replace(PLAN, program=replace(PLAN.program, pass_local_rank=False))
    assert without.command(second) == ("python", "-u", "train.py", "--lr", "1")


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


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(PLAN.to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data.update(version=2), "plan.version"),
        (lambda data: data.update(master_port="29500"), "plan.master_port"),
        (lambda data: data.update(master_port=70000), "plan.master_port"),
        (lambda data: data.update(master_port=True), "plan.master_port"),
        (lambda data: data.update(master_addr="a;b"), "plan.master_addr"),
        (lambda data: data.pop("directory"), "directory"),
        (lambda data: data.update(shell="rm"), "shell"),
        (lambda data: data.update(hosts=[]), "plan.hosts"),
        (lambda data: data["program"].update(command=[]), "plan.program.command"),
        (lambda data: data["program"].update(command=["a\0b"]), "plan.program.command"),
        (lambda data: data["exports"].update({"A;rm": "1"}), "A;rm"),
        (lambda data: data["hosts"][0].update(name="-oProxyCommand=x"), "ProxyCommand"),
        (lambda data: data["hosts"][0].update(name="a b"), "a b"),
        (lambda data: data["hosts"][1].update(node_rank=0), "hosts[1]"),
        (lambda data: data["hosts"][0]["ranks"][1].update(rank=0), "global ranks"),
        (lambda data: data["hosts"][0]["ranks"][1].update(local_rank=2), "local ranks"),
        (lambda data: data["hosts"][0]["ranks"][1].update(cpus=[0]), "cpus"),
        (lambda data: data["hosts"][0]["ranks"][1].update(slot=-1), "slot -1"),
        (lambda data: data["hosts"][0]["ranks"][1]["environment"].update(RANK="17"), "RANK='17'"),
        (lambda data: data["hosts"][0]["ranks"][1]["environment"].update(WORLD_SIZE="-4"), "WORLD_SIZE='-4'"),
        (lambda data: data["hosts"][1].update(name="you@worker-0"), "a machine twice"),
        (lambda data: data["binding"].update(reserve_cores=-1), "reserve_cores: -1"),
        (lambda data: data["program"].update(arguments=["\ud800"]), "plan.program.arguments[0]"),
        (lambda data: data["exports"].update({"TEXT": "\ud800"}), "exports.TEXT"),
        (lambda data: data["hosts"][0]["ranks"][1].update(cpus="3-1"), "cpus"),
        (lambda data: data["hosts"][0]["ranks"][1]["memory"].update(mode="interleave"), "memory.mode"),
        (lambda data: data["hosts"][0]["ranks"][1]["environment"].update({"A=B": "1"}), "A=B"),
        (lambda data: data["hosts"][0]["ranks"][1]["environment"].update({"A": "\0"}), "environment.A"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_by_the_name_of_the_field(
    change: Callable[[dict[str, Any]], object], named: str
) -> None:
    with pytest.raises(InvalidPlan) as caught:
        Plan.from_json(edited(change), "plan.json")
    assert named in caught.value.found
    assert "plan.json" in caught.value.what
