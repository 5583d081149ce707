# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The nodes, cores and bindings of every machine of shared/topologies; NUMA nodes of devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

from accel_core.vendor import format_cpu_list, parse_cpu_list
from accel_core.vendor.numa import allowed_cpus, read_nodes
from accel_launch import binding
from accel_launch.machine import _device_nodes, read_topology


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


def device(*properties: object) -> SimpleNamespace:
    def get_device_properties(index: int) -> object:
        found = properties[index]
        if isinstance(found, Exception):
            raise found
        return found

    module = SimpleNamespace(get_device_properties=get_device_properties)
    return SimpleNamespace(device_module=module, device_count=lambda: len(properties))


def at(bus: int) -> SimpleNamespace:
    return SimpleNamespace(pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)


def test_the_node_is_read_from_sys(tmp_path: Path) -> None:
    for address, node in (("0000:3b:00.0", "1"), ("0000:04:00.0", "-1"), ("0000:05:00.0", "nonsense")):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(node + "\n")
    asked = device(at(0x3B), at(4), at(5), at(6), SimpleNamespace(), RuntimeError("no driver"))
    assert _device_nodes(tmp_path, asked) == (1, *[None] * 5)  # type: ignore[arg-type]


def test_a_device_without_properties_has_no_known_node(tmp_path: Path) -> None:
    assert _device_nodes(tmp_path, SimpleNamespace(device_count=lambda: 2)) == ()  # type: ignore[arg-type]
