# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From the command line to a plan, on this machine's CPU and on machines of shared/topologies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_launch import emit, hosts, machine, planning, ssh
from accel_launch.errors import AffinityConflict, InvalidArguments, InvalidPlan, InvalidSelection
from accel_launch.machine import Accelerator, Machine
from accel_launch.options import Options
from accel_launch.plan import Plan


@pytest.fixture(autouse=True)
def place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    root_of: Callable[[str], Path],
    host_cpu: Accelerator,
) -> Path:
    """A folder with a script, on a machine with two sockets, whose accelerator is the CPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hosts, "DEFAULT_HOSTFILE", str(tmp_path / "none"))
    (tmp_path / "train.py").write_text("")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    here = Machine(machine.read_topology(root_of("two-sockets")), devices=2)
    monkeypatch.setattr(machine, "this_machine", lambda environ=None: here)
    monkeypatch.setattr(machine, "accelerator", lambda: host_cpu)
    return tmp_path


def make(**given: object) -> Plan:
    return planning.make_plan(Options(script="train.py", **given), {})  # type: ignore[arg-type]


def ranks_by_host(plan: Plan) -> dict[str, int]:
    return {host.name: len(host.ranks) for host in plan.hosts}


def test_without_a_number_there_is_a_rank_on_each_numa_node() -> None:
    plan = make(bind_cores_to_rank=True)
    assert ranks_by_host(plan) == {"localhost": 2}
    assert (plan.master_addr, plan.master_port) == ("127.0.0.1", 29500)
    assert plan.program.command == (sys.executable, "-u", "train.py")
    assert plan.directory == os.getcwd()
    assert ranks_by_host(make(bind_core_list="0-3")) == {"localhost": 1}
    assert ranks_by_host(make(num_accelerators=5)) == {"localhost": 5}


def test_a_visible_devices_mask_gives_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = Machine(machine.this_machine().topology, devices=2, mask=("4", "6", "7"))
    monkeypatch.setattr(machine, "this_machine", lambda environ=None: masked)
    plan = make(include="localhost:0,2")
    assert plan.hosts[0].ranks[0].environment["TOY_VISIBLE_DEVICES"] == "4,7"
    assert ranks_by_host(make()) == {"localhost": 3}
    with pytest.raises(InvalidSelection):
        make(num_accelerators=4)


def test_devices_are_the_slots(monkeypatch: pytest.MonkeyPatch, toy: Accelerator) -> None:
    monkeypatch.setattr(machine, "accelerator", lambda: toy)
    assert ranks_by_host(make()) == {"localhost": 2}
    with pytest.raises(InvalidSelection):
        make(num_accelerators=3)
    none = Machine(machine.this_machine().topology, devices=0)
    monkeypatch.setattr(machine, "this_machine", lambda environ=None: none)
    with pytest.raises(InvalidSelection, match="no device to start ranks on"):
        make()


def test_hosts_are_asked_unless_they_are_this_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "hosts").write_text("127.0.0.1 slots=2\n127.0.0.2 slots=1\n")
    monkeypatch.setattr(
        ssh, "query_hosts", lambda names, *rest: {name: machine.this_machine() for name in names}
    )
    assert not any(host.bound_here for host in make(hostfile="hosts").hosts)
    (place / "hosts").write_text("worker-0 slots=2\nworker-1 slots=1\n")
    assert not any(host.bound_here for host in make(hostfile="hosts").hosts)
    for launcher in ("slurm", "own"):
        assert all(host.bound_here for host in make(hostfile="hosts", launcher=launcher).hosts)
    assert all(host.bound_here for host in make(hostfile="hosts", no_ssh_check=True).hosts)
    one = make(hostfile="hosts", no_ssh=True, node_rank=1)
    assert [host.bound_here for host in one.hosts] == [True, False]
    assert one.master_addr == "worker-0"
    with pytest.raises(InvalidSelection, match="--node_rank 2"):
        make(hostfile="hosts", no_ssh=True, node_rank=2)


def test_a_single_host_is_this_machine_unless_another_engine_is_asked_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "hosts").write_text("worker-0 slots=2\n")
    asked: list[str] = []
    monkeypatch.setattr(ssh, "query_hosts", lambda names, *rest: asked.extend(names) or {})
    alone = make(hostfile="hosts")
    assert (alone.master_addr, alone.hosts[0].bound_here, asked) == ("127.0.0.1", False, [])
    assert "worker-0 is the only host" in alone.notes[0]
    for given in ({"force_multi": True}, {"launcher": "impi"}):
        there = make(hostfile="hosts", **given)
        assert (there.master_addr, there.notes, asked.pop()) == ("worker-0", (), "worker-0")
    (place / "hosts").write_text("127.0.0.1 slots=2\n")
    assert make(hostfile="hosts").notes == ()


def test_a_script_that_does_not_exist_is_found_before_hosts_are_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "hosts").write_text("worker-0 slots=2\nworker-1 slots=1\n")
    monkeypatch.setattr(ssh, "query_hosts", lambda *rest: pytest.fail("a host was asked"))
    with pytest.raises(InvalidArguments, match=r"missing\.py"):
        planning.make_plan(Options(script="missing.py", hostfile="hosts"), {})


def test_a_plan_is_replayed_with_another_master(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(bind_cores_to_rank=True)
    (place / "plan.json").write_text(plan.to_json())
    assert planning.load_plan(Options(plan="plan.json")) == plan
    moved = planning.load_plan(Options(plan="plan.json", master_addr="10.0.0.1", master_port=4000))
    assert moved == plan.with_master("10.0.0.1", 4000)
    with pytest.raises(InvalidSelection, match="--node_rank 1"):
        planning.load_plan(Options(plan="plan.json", no_ssh=True, node_rank=1))
    monkeypatch.setenv("KMP_AFFINITY", "compact")
    with pytest.raises(AffinityConflict):
        planning.load_plan(Options(plan="plan.json"))
    with pytest.raises(InvalidPlan, match="cannot read the plan"):
        planning.load_plan(Options(plan="missing.json"))


def test_an_edited_plan_with_the_same_cpus_for_two_ranks_is_refused(place: Path) -> None:
    plan = make(bind_cores_to_rank=True)
    data = json.loads(plan.to_json())
    first, second = data["hosts"][0]["ranks"]
    assert planning.load_plan(Options(plan=_written(place, data))) == plan
    second["cpus"] = f"{first['cpus'].partition('-')[0]},{second['cpus']}"
    with pytest.raises(InvalidPlan) as error:
        planning.load_plan(Options(plan=_written(place, data)))
    assert "ranks 0 and 1 both have CPU 0" in error.value.found
    assert "--bind_cores_to_rank" in error.value.do


def _written(place: Path, data: object) -> str:
    (place / "edited.json").write_text(json.dumps(data))
    return "edited.json"


def test_the_table_shows_what_the_plan_has(place: Path) -> None:
    text = emit.table(make(bind_cores_to_rank=True, num_accelerators=3, reserve_cores=1))
    rows = [line.split() for line in text.splitlines()]
    assert ["0", "localhost", "0", "1", "1,9", "0", "bind", "0", "1"] in rows
    assert ["2", "localhost", "2", "3", "5-7,13-15", "1", "bind", "1", "3"] in rows
    assert "reserved on localhost: CPUs 0,4,8,12" in text
    assert "note: CPUs 3,11 of localhost belong to no rank" in text
    assert "not bound" in emit.table(make())
    (place / "hosts").write_text("worker-0 slots=1\n")
    assert "decided on the host" in emit.table(make(hostfile="hosts", force_multi=True, launcher="slurm"))


def test_the_facts_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    here = machine.this_machine({"ACCEL_CPU_VISIBLE_DEVICES": "0, 3"})
    assert here.topology.cpus() <= os.sched_getaffinity(0)
    assert here.mask == ("0", "3")
    assert Machine.from_json(here.to_json()) == here
    described = machine.accelerator()
    assert (described.name, described.ranks_are_devices) == ("cpu", False)


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (Options("train.py", ("--lr", "1")), ("-u", "train.py")),
        (Options("own.part", module=True), ("-u", "-m", "own.part")),
        (Options("./run.sh", no_python=True, no_local_rank=True), None),
    ],
)
def test_commands(given: Options, command: tuple[str, ...] | None) -> None:
    program = planning.make_plan(given, {}).program
    assert program.command == ((sys.executable, *command) if command else ("./run.sh",))
    assert (program.arguments, program.pass_local_rank) == (given.arguments, not given.no_local_rank)


@pytest.mark.parametrize(
    "options",
    [
        Options("train.py"),
        Options("train", module=True),
        Options("own.part", module=True),
        Options("json.tool", module=True),
        Options("./run.sh", no_python=True),
        Options("sh", no_python=True),
    ],
)
def test_programs_that_exist(options: Options) -> None:
    planning.check_program(options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (Options("missing.py"), "missing.py"),
        (Options("missing", module=True), "missing"),
        (Options(".train", module=True), "no module ''"),
        (Options("train.py", no_python=True), "not an executable file"),
        (Options("./missing", no_python=True), "missing"),
        (Options("train.py", ("a\0b",)), "NUL"),
    ],
)
def test_programs_that_do_not_exist_are_named(options: Options, named: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        planning.check_program(options)
    assert named in caught.value.found
