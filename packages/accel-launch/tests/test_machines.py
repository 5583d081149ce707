# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The nodes, cores and bindings of every machine of shared/topologies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from accel_core.vendor import format_cpu_list, parse_cpu_list
from accel_core.vendor.numa import allowed_cpus, read_nodes
from accel_launch import binding
from accel_launch.machine import read_topology


def test_there_are_machines_enough(machines: ModuleType) -> None:
    assert len(machines.machines()) >= 25


def test_usable_nodes(machine_name: str, machines: ModuleType, root_of: Callable[[str], Path]) -> None:
    root = root_of(machine_name)
    nodes = read_nodes(root, allowed_cpus(root))
    assert [(node.number, format_cpu_list(node.cpus)) for node in nodes] == [
        (row["node"], row["cpus"]) for row in machines.load(machine_name)["nodes"]
    ]


def test_first_thread_of_each_core(
    machine_name: str, machines: ModuleType, root_of: Callable[[str], Path]
) -> None:
    nodes = sorted(read_topology(root_of(machine_name)).nodes, key=lambda node: node.number)
    assert [(node.number, format_cpu_list(core.cpus[0] for core in node.cores)) for node in nodes] == [
        (row["node"], row["cores"]) for row in machines.load(machine_name)["nodes"]
    ]


def test_expected_bindings(machine_name: str, machines: ModuleType, root_of: Callable[[str], Path]) -> None:
    machine = read_topology(root_of(machine_name))
    for wanted in machines.load(machine_name)["bindings"]:
        usable, reserved = binding.usable_cores(
            machine, wanted.get("core_list"), wanted.get("reserve_cores", 0)
        )
        shares = binding.divide(usable, wanted.get("ranks", len(usable.nodes)))
        found = []
        for share in shares:
            policy = share.memory()
            memory = f"{policy.mode} {format_cpu_list(policy.nodes)}".strip()
            found.append([format_cpu_list(share.cpus()), len(share.cores), memory])
        assert found == wanted["expected"]
        unused = usable.cpus() - {cpu for share in shares for cpu in share.cpus()}
        assert format_cpu_list(unused) == wanted.get("unused", "")
        assert format_cpu_list(reserved) == wanted.get("reserved", "")


def test_an_affinity_given_by_the_caller_counts_instead_of_the_process_s(
    machine_name: str, machines: ModuleType, root_of: Callable[[str], Path]
) -> None:
    allowed = sorted(parse_cpu_list(machines.load(machine_name)["affinity"]))[::2]
    machine = read_topology(root_of(machine_name), allowed)
    cpus = [cpu for node in machine.nodes for core in node.cores for cpu in core.cpus]
    assert sorted(cpus) == allowed
