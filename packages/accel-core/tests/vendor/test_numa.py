# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Usable CPUs and NUMA nodes: affinity, cpusets, /sys, lists of CPUs. The machines are in launch/test_machines.py."""

import os
from pathlib import Path

import pytest

from accel_core.vendor import InvalidCpuList, format_cpu_list, parse_cpu_list, usable_nodes
from accel_core.vendor.numa import NumaNode, allowed_cpus, read_nodes

#: CPUs of each node, allowed CPUs, nodes: an index, its CPUs.
NODES: dict[str, tuple[list[str], set[int], list[tuple[int, ...]]]] = {
    "no sysfs": ([], {4, 2}, [(2, 4)]),
    "a CPU of no node": (["0-1", "2-3"], {7}, [(7,)]),
    "a CPU of no node, and others": (["0-1", "2-3"], {0, 3, 7}, [(0, 7), (3,)]),
    "a CPU of two nodes": (["0-2", "2-3"], {0, 1, 2, 3}, [(0, 1, 2), (3,)]),
}


@pytest.mark.parametrize(("lists", "allowed", "cpus"), NODES.values(), ids=NODES)
def test_nodes(tmp_path: Path, lists: list[str], allowed: set[int], cpus: list[tuple[int, ...]]) -> None:
    for number, text in enumerate(lists):
        write(tmp_path, f"node/node{number}/cpulist", text)
    found = read_nodes(tmp_path, allowed)
    assert [node.cpus for node in found] == cpus
    assert len(found) > 1 or found == (NumaNode(0, cpus[0], (0,)),)


def test_affinity_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCEL_SYSROOT", raising=False)
    cpus = {cpu for node in usable_nodes() for cpu in node.cpus}
    assert cpus <= os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {min(cpus)})
    assert [node.cpus for node in usable_nodes()] == [(min(cpus),)]


def test_all_cpus_are_allowed_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert allowed_cpus(tmp_path) == {0, 1, 2}


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        ("0::/job/step", {"job/step/cpuset.cpus.effective": "2-3"}, {2, 3}),
        ("0::/job/step", {"job/cpuset.cpus.effective": "1-2"}, {1, 2}),
        ("0::/docker/4711", {"cpuset.cpus.effective": "1"}, {1}),
        ("3:cpu,cpuset:/job", {"cpuset/job/cpuset.cpus": "3"}, {3}),
        ("3:cpuset:/job", {"cpuset/job/cpuset.cpus": "0-3", "cpuset/job/cpuset.effective_cpus": "0"}, {0}),
        ("3:cpuset:/docker/4711", {"cpuset/cpuset.cpus": "0,2"}, {0, 2}),
        ("0::/../outside", {"../outside/cpuset.cpus.effective": "1"}, {0, 1, 2, 3}),
        ("0::/job", {"job/cpuset.cpus.effective": ""}, {0, 1, 2, 3}),
        ("0::/job", {"job/cpuset.cpus.effective": "64-65"}, {0, 1, 2, 3}),
        ("0::/job", {"job/cpuset.cpus.effective": "nonsense"}, {0, 1, 2, 3}),
        ("nonsense", {}, {0, 1, 2, 3}),
    ],
)
def test_cpuset(groups: str, files: dict[str, str], cpus: set[int], tmp_path: Path) -> None:
    write(tmp_path, "cpu/online", "0-3")
    write(tmp_path, "/proc/self/cgroup", groups + "\n")
    for name, text in files.items():
        write(tmp_path, f"/sys/fs/cgroup/{name}", text + "\n")
    assert allowed_cpus(tmp_path) == cpus


def test_offline_cpu_is_not_allowed(tmp_path: Path) -> None:
    write(tmp_path, "cpu/online", "0-3")
    write(tmp_path, "/proc/self/status", "Name:\tpython\nCpus_allowed_list:\t1,3,9\n")
    assert allowed_cpus(tmp_path) == {1, 3}


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
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@pytest.mark.parametrize(
    "text",
    [
        "a", "0-", "-3", "3-1", "0,,1", "0,1,", "0 1", "0-3,2", "1,1", "0x3", "0-7:2/4", "0--1", "٣", "0-99999999999",
        "9" * 5000, "\x00",
    ],
)  # fmt: skip
def test_mangled_cpu_list_is_rejected(text: str, tmp_path: Path) -> None:
    write(tmp_path, "node/node0/cpulist", text)
    with pytest.raises(InvalidCpuList) as caught:
        read_nodes(tmp_path, {0})
    assert "node0/cpulist" in caught.value.message
    assert text[:1] in caught.value.message or "\\x00" in caught.value.message
    assert "0-3,8,10-11" in caught.value.message
    assert "ACCEL_SYSROOT" in caught.value.do


def write(root: Path, name: str, text: str) -> None:
    path = root / Path("/sys/devices/system", name).relative_to("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
