# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a job: ranks, variables, devices, cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accel_launch import planning
from accel_launch.errors import AffinityConflict, BindingImpossible, InvalidSelection
from accel_launch.machine import Accelerator, Machine, read_topology
from accel_launch.plan import Binding, MemoryPolicy, Plan, Program

JOB = Plan((), "worker-0", 29500, Program(("python", "train.py")), "/work")


def arrange(
    job: Plan,
    slots: Mapping[str, Sequence[int]],
    machines: Mapping[str, Machine],
    accelerator: Accelerator,
    **environ: str,
) -> Plan:
    return planning.arrange(job, slots, machines, accelerator, environ)


@pytest.fixture
def here(root_of: Callable[[str], Path]) -> Machine:
    return Machine(read_topology(root_of("two-sockets")), devices=4)


def test_variables_that_a_script_sees(here: Machine, toy: Accelerator) -> None:
    slots = {"worker-0": (0, 1), "worker-1": (0, 2, 3)}
    plan = arrange(JOB, slots, dict.fromkeys(slots, here), toy)
    seen = [rank.environment for _, rank in plan.ranks()]
    assert seen[3] == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "5",
        "LOCAL_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "worker-0",
        "MASTER_PORT": "29500",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "2",
        "TOY_VISIBLE_DEVICES": "0,2,3",
        "OMP_NUM_THREADS": "2",
    }
    assert [variables["RANK"] for variables in seen] == ["0", "1", "2", "3", "4"]
    assert [variables["LOCAL_RANK"] for variables in seen] == ["0", "1", "0", "1", "2"]
    assert [rank.device for _, rank in plan.ranks()] == ["0", "1", "0", "2", "3"]


def test_bound_ranks_have_cores_memory_and_threads(here: Machine, host_cpu: Accelerator) -> None:
    plan = arrange(replace(JOB, binding=Binding()), {"worker-0": (0, 1)}, {"worker-0": here}, host_cpu)
    first, second = plan.hosts[0].ranks
    assert (first.cpus, first.cores, first.numa_nodes) == ((0, 1, 2, 3, 8, 9, 10, 11), 4, (0,))
    assert second.memory == MemoryPolicy("bind", (1,))
    assert (second.environment["OMP_NUM_THREADS"], second.environment["KMP_BLOCKTIME"]) == ("4", "1")
    assert second.device == ""
    assert plan.notes == ()


def test_a_blocktime_of_the_user_is_kept(here: Machine, host_cpu: Accelerator) -> None:
    job = replace(JOB, binding=Binding())
    plan = arrange(job, {"worker-0": (0,)}, {"worker-0": here}, host_cpu, KMP_BLOCKTIME="5")
    assert "KMP_BLOCKTIME" not in plan.hosts[0].ranks[0].environment


def test_cores_that_no_rank_has_are_reported(here: Machine, host_cpu: Accelerator) -> None:
    slots = {"worker-0": range(6)}
    plan = arrange(replace(JOB, binding=Binding(None, 0)), slots, {"worker-0": here}, host_cpu)
    assert plan.hosts[0].unused == (3, 7, 11, 15)
    assert "CPUs 3,7,11,15 of worker-0" in plan.notes[0]
    reserving = arrange(
        replace(JOB, binding=Binding(None, 1)), {"worker-0": (0, 1)}, {"worker-0": here}, host_cpu
    )
    assert (reserving.hosts[0].reserved, reserving.hosts[0].unused) == ((0, 4, 8, 12), ())


def test_too_many_ranks_name_the_host(here: Machine, host_cpu: Accelerator) -> None:
    slots = {"worker-0": range(8), "worker-1": range(9)}
    with pytest.raises(BindingImpossible, match="worker-1: cannot bind") as caught:
        arrange(replace(JOB, binding=Binding()), slots, dict.fromkeys(slots, here), host_cpu)
    assert "9 ranks, 8 physical cores" in caught.value.found


def test_ranks_that_are_not_bound_share_the_cores(here: Machine, host_cpu: Accelerator) -> None:
    slots = {"worker-0": range(20)}
    plan = arrange(JOB, slots, {"worker-0": here}, host_cpu)
    assert plan.hosts[0].ranks[0].environment["OMP_NUM_THREADS"] == "1"
    kept = arrange(JOB, slots, {"worker-0": here}, host_cpu, OMP_NUM_THREADS="7")
    assert "OMP_NUM_THREADS" not in kept.hosts[0].ranks[0].environment
    assert plan.hosts[0].ranks[0].cpus == ()


@pytest.mark.parametrize("name", ["KMP_AFFINITY", "GOMP_CPU_AFFINITY"])
def test_a_variable_that_binds_threads_elsewhere_is_an_error_that_names_it(
    name: str, here: Machine, host_cpu: Accelerator
) -> None:
    given = {name: "0-3"}
    arrange(JOB, {"worker-0": (0,)}, {"worker-0": here}, host_cpu, **given)
    with pytest.raises(AffinityConflict, match=f"{name} is set"):
        arrange(replace(JOB, binding=Binding()), {"worker-0": (0,)}, {"worker-0": here}, host_cpu, **given)


def test_a_mask_is_narrowed_and_its_items_are_kept(here: Machine, toy: Accelerator) -> None:
    masked = replace(here, devices=3, mask=("GPU-9f3b", "MIG-1", "7"))
    plan = arrange(JOB, {"worker-0": (0, 2)}, {"worker-0": masked}, toy)
    assert [rank.device for rank in plan.hosts[0].ranks] == ["GPU-9f3b", "7"]
    assert plan.hosts[0].ranks[1].environment["TOY_VISIBLE_DEVICES"] == "GPU-9f3b,7"


@given(st.lists(st.text("0123456789GPUMIG-.", min_size=1), min_size=1, max_size=8, unique=True), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_mask_is_widened(here: Machine, toy: Accelerator, mask: list[str], data: st.DataObject) -> None:
    devices = data.draw(st.integers(0, 10))
    slots = sorted(data.draw(st.sets(st.integers(0, 9), min_size=1)))
    masked = replace(here, devices=devices, mask=tuple(mask))
    try:
        plan = arrange(JOB, {"worker-0": slots}, {"worker-0": masked}, toy)
    except InvalidSelection:
        assert devices != len(mask) or max(slots) >= devices
        return
    environment = plan.hosts[0].ranks[0].environment
    visible = environment.get("TOY_VISIBLE_DEVICES", ",".join(mask)).split(",")
    assert set(visible) <= set(mask)


def test_a_mask_whose_items_are_several_devices_is_left_as_it_is(here: Machine, toy: Accelerator) -> None:
    tiles = replace(here, devices=2, mask=("0",))
    plan = arrange(JOB, {"worker-0": (0, 1)}, {"worker-0": tiles}, toy)
    assert "TOY_VISIBLE_DEVICES" not in plan.hosts[0].ranks[0].environment
    with pytest.raises(InvalidSelection, match="slot 0 of worker-0"):
        arrange(JOB, {"worker-0": (0,)}, {"worker-0": tiles}, toy)


def test_devices_that_no_launcher_chooses_are_numbered_by_local_ranks(
    here: Machine, toy: Accelerator
) -> None:
    unread = replace(toy, restricts=False)
    arrange(JOB, {"worker-0": (0, 1)}, {"worker-0": here}, unread)
    with pytest.raises(InvalidSelection, match="a launcher cannot choose the devices of worker-0"):
        arrange(JOB, {"worker-0": (1,)}, {"worker-0": here}, unread)


def test_a_slot_without_a_device_is_refused(here: Machine, toy: Accelerator, host_cpu: Accelerator) -> None:
    with pytest.raises(InvalidSelection, match="slot 4 of worker-0"):
        arrange(JOB, {"worker-0": range(5)}, {"worker-0": here}, toy)
    arrange(JOB, {"worker-0": range(5)}, {"worker-0": here}, host_cpu)


def test_ranks_are_placed_near_their_devices(here: Machine, toy: Accelerator) -> None:
    near = replace(here, device_nodes=(1, 1, 0, None))
    plan = arrange(replace(JOB, binding=Binding()), {"worker-0": range(4)}, {"worker-0": near}, toy)
    assert [rank.numa_nodes for rank in plan.hosts[0].ranks] == [(1,), (1,), (0,), (0,)]


def test_a_host_without_facts_completes_its_own_part(here: Machine, toy: Accelerator) -> None:
    job, slots = replace(JOB, binding=Binding()), {"worker-0": (0, 1), "worker-1": (0, 1)}
    whole = arrange(job, slots, dict.fromkeys(slots, here), toy)
    partial = arrange(job, slots, {"worker-0": here}, toy)
    assert partial.hosts[1].bound_here
    assert partial.hosts[1].ranks[0].cpus == ()
    read = Plan.from_json(partial.to_json())
    assert planning.complete(read, 1, here, toy, {}) == whole
    assert planning.complete(whole, 1, here, toy, {}) is whole
    with pytest.raises(AffinityConflict):
        planning.complete(read, 1, here, toy, {"KMP_AFFINITY": "compact"})


def test_the_master_is_the_first_host(here: Machine, toy: Accelerator) -> None:
    def master(*hosts: str) -> str:
        slots = dict.fromkeys(hosts, (0,))
        return arrange(replace(JOB, master_addr=""), slots, dict.fromkeys(hosts, here), toy).master_addr

    assert master("me@worker-0", "worker-1") == "worker-0"
    assert master("[fe80::1]", "worker-1") == "fe80::1"
    assert master("127.0.0.1", "127.0.0.2") == "127.0.0.1"
    with pytest.raises(InvalidSelection, match="cannot reach the first one"):
        master("localhost", "worker-1")


@given(
    name=st.sampled_from(["two-sockets", "hbm-flat", "laptop", "container-half-cores", "eight-sockets"]),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    bind=st.booleans(),
    known=st.booleans(),
    exports=st.dictionaries(
        st.from_regex(r"\A[A-Z_]{1,8}\Z"), st.text(st.characters(codec="utf-8", exclude_characters="\0"))
    ),
    arguments=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_plan_is_the_same_after_json(
    root_of: Callable[[str], Path],
    toy: Accelerator,
    name: str,
    counts: list[int],
    bind: bool,
    known: bool,
    exports: dict[str, str],
    arguments: list[str],
) -> None:
    here = Machine(read_topology(root_of(name)), devices=4)
    slots = {f"worker-{number}": range(count) for number, count in enumerate(counts)}
    job = replace(
        JOB,
        program=Program(("python", "x.py"), tuple(arguments)),
        exports=exports,
        binding=Binding() if bind else None,
    )
    plan = arrange(job, slots, dict.fromkeys(slots, here) if known else {}, toy)
    assert Plan.from_json(plan.to_json()) == plan
    assert Machine.from_json(here.to_json()) == here
