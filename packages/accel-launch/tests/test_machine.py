# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The nodes, cores and bindings of every machine of shared/topologies; NUMA nodes of devices."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from accel_core.vendor import format_cpu_list, parse_cpu_list
from accel_core.vendor.numa import allowed_cpus, read_nodes
from accel_launch import binding, machine
from accel_launch.machine import Machine, _device_nodes, read_topology


def test_nodes_and_first_threads_of_cores(
    machine_name: str, machines: ModuleType, root_of: Callable[[str], Path]
) -> None:
    root = root_of(machine_name)
    expected = machines.load(machine_name)["nodes"]
    nodes = read_nodes(root, allowed_cpus(root))
    assert [(node.number, format_cpu_list(node.cpus)) for node in nodes] == [
        (row["node"], row["cpus"]) for row in expected
    ]
    with_cores = sorted(read_topology(root).nodes, key=lambda node: node.number)
    assert [(node.number, format_cpu_list(core.cpus[0] for core in node.cores)) for node in with_cores] == [
        (row["node"], row["cores"]) for row in expected
    ]


def test_expected_bindings(machine_name: str, machines: ModuleType, root_of: Callable[[str], Path]) -> None:
    topology = read_topology(root_of(machine_name))
    for wanted in machines.load(machine_name)["bindings"]:
        usable, reserved = binding.usable_cores(
            topology, wanted.get("core_list"), wanted.get("reserve_cores", 0)
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
    topology = read_topology(root_of(machine_name), allowed)
    cpus = [cpu for node in topology.nodes for core in node.cores for cpu in core.cpus]
    assert sorted(cpus) == allowed


def test_the_node_of_a_device_is_read_from_sys(tmp_path: Path) -> None:
    for address, node in (("0000:3b:00.0", "1"), ("0000:04:00.0", "-1"), ("0000:05:00.0", "nonsense")):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(node + "\n")

    def get_device_properties(index: int) -> SimpleNamespace:
        if index == 5:
            raise RuntimeError("no driver")
        bus = {} if index == 4 else {"pci_bus_id": (0x3B, 4, 5, 6)[index]}
        return SimpleNamespace(pci_domain_id=0, pci_device_id=0, **bus)

    module = SimpleNamespace(get_device_properties=get_device_properties)
    asked = SimpleNamespace(device_module=module, device_count=lambda: 6)
    assert _device_nodes(tmp_path, asked) == (1, *[None] * 5)  # type: ignore[arg-type]
    assert _device_nodes(tmp_path, SimpleNamespace(device_count=lambda: 2)) == ()  # type: ignore[arg-type]


def test_the_facts_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    here = machine.this_machine({"ACCEL_CPU_VISIBLE_DEVICES": "0, 3"})
    assert here.topology.cpus() <= os.sched_getaffinity(0)
    assert here.mask == ("0", "3")
    assert Machine.from_json(here.to_json()) == here
    described = machine.accelerator()
    assert (described.name, described.ranks_are_devices) == ("cpu", False)
