# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Usable NUMA nodes and cores, over the recorded machines of shared/topologies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from accel_cpu import topology
from accel_cpu.topology import InvalidCpuList, Node, parse_cpu_list, read_nodes, usable_nodes

MACHINES = sorted(path.parent for path in Path(__file__).parents[3].glob("shared/topologies/*/expected.json"))


def expected(machine: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((machine / "expected.json").read_text())
    return loaded


def test_the_recordings_are_found() -> None:
    assert len(MACHINES) >= 10


@pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
def test_usable_nodes_of_a_recorded_machine(machine: Path) -> None:
    want = expected(machine)
    nodes = read_nodes(machine, parse_cpu_list(want["affinity"]))
    assert [(node.number, frozenset(node.cpus)) for node in nodes] == [
        (row["node"], parse_cpu_list(row["cpus"])) for row in want["nodes"]
    ]
    assert all(list(node.cpus) == sorted(node.cpus) for node in nodes)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
def test_no_node_holds_a_cpu_outside_the_affinity(machine: Path) -> None:
    allowed = set(sorted(parse_cpu_list(expected(machine)["affinity"]))[::2])
    nodes = read_nodes(machine, allowed)
    cpus = [cpu for node in nodes for cpu in node.cpus]
    assert set(cpus) == allowed
    assert len(cpus) == len(allowed), "a CPU is in two nodes"


def test_a_machine_without_sysfs_is_one_node_with_all_allowed_cpus(tmp_path: Path) -> None:
    assert read_nodes(tmp_path, {4, 2}) == (Node(0, (2, 4)),)


def test_nodes_that_do_not_know_the_allowed_cpus_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "node/node0/cpulist", "0-1")
    assert read_nodes(tmp_path, {7}) == (Node(0, (7,)),)


def test_sysroot_shows_the_recorded_machine_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = next(path for path in MACHINES if path.name == "cpuset-second-node")
    monkeypatch.setenv("ACCEL_SYSROOT", str(machine))
    assert [len(node.cpus) for node in usable_nodes()] == [40, 40]


def test_the_affinity_of_this_process_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCEL_SYSROOT", raising=False)
    cpus = {cpu for node in usable_nodes() for cpu in node.cpus}
    assert cpus == topology.allowed_cpus()


def test_without_affinity_in_the_system_all_cpus_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert topology.allowed_cpus() == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}),
        ("5-5", {5}),
    ],
)
def test_kernel_cpu_lists_are_read(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "0-",
        "-3",
        "3-1",
        "0,,1",
        "0,1,",
        "0 1",
        "0-3,2",
        "1,1",
        "0x3",
        "0-7:2/4",
        "0--1",
        "٣",
        "0-99999999999",
        "\x00",
    ],
)
def test_a_mangled_cpu_list_is_refused_in_four_parts(text: str, tmp_path: Path) -> None:
    write(tmp_path, "node/node0/cpulist", text)
    with pytest.raises(InvalidCpuList) as caught:
        read_nodes(tmp_path, {0})
    assert "node0/cpulist" in caught.value.what
    assert text[:1] in caught.value.found or "\\x00" in caught.value.found
    assert "0-3,8,10-11" in caught.value.expected
    assert "ACCEL_SYSROOT" in caught.value.do


def write(root: Path, name: str, text: str) -> None:
    path = root / "sys/devices/system" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
