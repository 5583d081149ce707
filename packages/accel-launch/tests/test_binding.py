# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Cores of ranks on random machines, and on each machine of shared/topologies; NUMA nodes of devices."""

import itertools
import os
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accel_core.vendor import format_cpu_list, parse_cpu_list
from accel_core.vendor.numa import allowed_cpus, read_nodes
from accel_launch import machine
from accel_launch.errors import BindingImpossible
from accel_launch.machine import Core, Machine, Node, Topology, _device_nodes, read_topology
from shared.topologies import build


def made(*sizes: int, threads: int = 1, sockets: int = 1, capacities: tuple[int, ...] = (1024,)) -> Topology:
    """A machine with nodes of these many cores; second threads are numbered after all cores."""
    total, numbers, kinds = sum(sizes), itertools.count(), itertools.cycle(capacities)

    def core(node: int) -> Core:
        first = next(numbers)
        return Core(tuple(first + total * thread for thread in range(threads)), node % sockets, next(kinds))

    return Topology(
        tuple(
            Node(number, tuple(core(number) for _ in range(size)), (number,), (number,), ())
            for number, size in enumerate(sizes)
        )
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    whole = made(
        *sizes,
        threads=draw(st.sampled_from([1, 2, 4])),
        sockets=draw(st.sampled_from([1, 2])),
        capacities=draw(st.sampled_from([(1024,), (1024, 446), (1024, 1010), (1024, 800, 300)])),
    )
    allowed = draw(st.sets(st.sampled_from(sorted(whole.cpus())), min_size=1))
    return whole.narrowed(allowed)


@given(topologies(), st.integers(1, 80), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=8))
def test_shares_of_any_machine(topology, ranks, near):
    if ranks > topology.core_count():
        with pytest.raises(BindingImpossible, match="more ranks than cores"):
            machine.divide(topology, ranks, near)
    else:
        shares = machine.divide(topology, ranks, near)
        given_cpus = [cpu for share in shares for cpu in share.cpus()]
        assert len(shares) == ranks
        assert len(given_cpus) == len(set(given_cpus)), "two ranks share a CPU"
        assert set(given_cpus) <= topology.cpus()
        for node in topology.nodes:
            for core in node.cores:
                owners = [share for share in shares if set(share.cpus()) & set(core.cpus)]
                assert len(owners) <= 1, "siblings are in two ranks"
                assert not owners or set(core.cpus) <= set(owners[0].cpus()), "a sibling is left out"
        for share in shares:
            assert share.cores
            assert len(share.nodes) == 1 or ranks < len(topology.nodes), "a rank crosses nodes without need"


@given(topologies(), st.integers(1, 80))
def test_unused_cores_are_few(topology, ranks):
    assume(ranks <= topology.core_count())
    shares = machine.divide(topology, ranks)
    smallest = min(len(share.cores) for share in shares)
    for node in topology.nodes:
        own = [share for share in shares if node in share.nodes]
        given_cores = sum(core in node.cores for share in own for core in share.cores)
        if own:
            assert len(node.cores) - given_cores < len(own)
        else:
            # A node that no rank has would have made no share larger.
            assert len(node.cores) <= smallest or ranks < len(topology.nodes)
    shares = machine.divide(topology, len(topology.nodes))
    assert [share.cores for share in shares] == [node.cores for node in topology.nodes]
    assert set(machine.divide(topology, 1)[0].cpus()) == topology.cpus()


@given(topologies(), st.integers(0, 4))
def test_reserved_cores_are_unused(topology, reserve):
    if all(len(node.cores) <= reserve for node in topology.nodes):
        with pytest.raises(BindingImpossible, match="no core is left"):
            machine.usable_cores(topology, None, reserve)
    else:
        usable, reserved = machine.usable_cores(topology, None, reserve)
        assert usable.cpus() | set(reserved) == topology.cpus()
        assert usable.cpus().isdisjoint(reserved)
        for node in topology.nodes:
            kept = [core for core in node.cores if set(core.cpus) <= set(reserved)]
            assert len(kept) == min(reserve, len(node.cores))


@pytest.mark.parametrize("text", ["3-1", "0-3,2-5", "4,0", "0,0", "", "0 1", "0-9", "5,7", "2-5"])
def test_wrong_core_list_is_named(text):
    with pytest.raises(BindingImpossible) as caught:
        machine.usable_cores(made(4, 4).narrowed([0, 1, 4, 5, 6]), text, 0)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("topology", "ranks", "near", "nodes"),
    [
        pytest.param(made(4, 4), 4, [1, 1, 0, None], [1, 1, 0, 0], id="near devices"),
        pytest.param(made(4, 4), 2, [7, 7], [0, 1], id="devices on a node without usable cores"),
        pytest.param(made(1, 5), 3, [0, 0, 0], [1, 1, 1], id="more devices than the node has cores"),
        pytest.param(made(3, 1), 3, [], [0, 0, 1], id="of equal nodes the one with fewer ranks"),
        pytest.param(made(8, 1, 3), 2, [], [0, 0], id="no node is crossed where no share would be larger"),
        pytest.param(made(6, 1, 3), 2, [], [0, (1, 2)], id="whole nodes"),
    ],
)
def test_nodes_of_ranks(topology, ranks, near, nodes):
    shares = machine.divide(topology, ranks, near)
    numbers = [tuple(node.number for node in share.nodes) for share in shares]
    assert [own[0] if len(own) == 1 else own for own in numbers] == nodes


def test_kinds_of_cores():
    assert machine.usable_cores(made(4, capacities=(1024, 446)), None, 1)[1] == (1,)
    assert machine.usable_cores(made(4, threads=2), None, 1)[1] == (0, 4)
    shares = machine.divide(made(8, capacities=(1024, 446)), 4)
    assert [sorted(core.capacity for core in share.cores) for share in shares] == [[446, 1024]] * 4
    # Almost equal cores are one kind.
    shares = machine.divide(made(4, capacities=(1024, 1010)), 2)
    assert [share.cpus() for share in shares] == [(0, 1), (2, 3)]


@pytest.mark.parametrize("name", build.machines())
def test_recorded_machine(name, root_of):
    root, expected = root_of(name), build.load(name)
    topology = read_topology(root)
    nodes = read_nodes(root, allowed_cpus(root))
    cores = {node.number: format_cpu_list(core.cpus[0] for core in node.cores) for node in topology.nodes}
    found = [(node.number, format_cpu_list(node.cpus), cores[node.number]) for node in nodes]
    assert found == [(row["node"], row["cpus"], row["cores"]) for row in expected["nodes"]]
    for wanted in expected["bindings"]:
        usable, reserved = machine.usable_cores(
            topology, wanted.get("core_list"), wanted.get("reserve_cores", 0)
        )
        shares = machine.divide(usable, wanted.get("ranks", len(usable.nodes)))
        bound = []
        for share in shares:
            policy = share.memory()
            memory = f"{policy.mode} {format_cpu_list(policy.nodes)}".strip()
            bound.append([format_cpu_list(share.cpus()), len(share.cores), memory])
        assert bound == wanted["expected"]
        unused = usable.cpus() - {cpu for share in shares for cpu in share.cpus()}
        assert format_cpu_list(unused) == wanted.get("unused", "")
        assert format_cpu_list(reserved) == wanted.get("reserved", "")
    # An affinity that the caller passes replaces that of the process.
    allowed = sorted(parse_cpu_list(expected["affinity"]))[::2]
    assert sorted(read_topology(root, allowed).cpus()) == allowed


def test_node_of_device(tmp_path):
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


def test_this_machine(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    here = machine.this_machine({"ACCEL_CPU_VISIBLE_DEVICES": "0, 3"})
    assert here.topology.cpus() <= os.sched_getaffinity(0)
    assert here.mask == ("0", "3")
    assert Machine.from_json(here.to_json()) == here
    described = machine.accelerator()
    assert (described.name, described.ranks_are_devices) == ("cpu", False)
