# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What holds for the cores of ranks on any machine, any allowed CPUs, any number of ranks.

The nodes, cores and bindings of every machine of shared/topologies; NUMA nodes of devices.
"""

import itertools
import os
from contextlib import suppress
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
    total = sum(sizes)
    numbers = itertools.count()
    kinds = itertools.cycle(capacities)
    nodes = tuple(
        Node(
            number,
            tuple(
                Core(tuple(cpu + total * thread for thread in range(threads)), number % sockets, next(kinds))
                for cpu in itertools.islice(numbers, size)
            ),
            (number,),
            (number,),
            (),
        )
        for number, size in enumerate(sizes)
    )
    cpus = tuple(range(total * threads))
    return Topology(nodes, cpus, cpus)


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
def test_what_is_left_over_is_less_than_one_core_for_each_rank_of_a_node(topology, ranks):
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


@given(topologies())
def test_as_many_ranks_as_nodes_are_one_on_each_and_one_rank_has_every_core(topology):
    shares = machine.divide(topology, len(topology.nodes))
    assert [share.cores for share in shares] == [node.cores for node in topology.nodes]
    (share,) = machine.divide(topology, 1)
    assert set(share.cpus()) == topology.cpus()


@given(topologies(), st.integers(0, 4))
def test_reserved_cores_are_whole_of_each_node_and_in_no_share(topology, reserve):
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


@given(topologies(), st.data())
def test_a_core_list_is_the_universe(topology, data):
    listed = data.draw(st.sets(st.sampled_from(sorted(topology.cpus())), min_size=1))
    usable, _ = machine.usable_cores(topology, format_cpu_list(listed), 0)
    assert usable.cpus() == listed


@given(st.one_of(st.text(), st.text("0123456789,- ", max_size=12)))
def test_any_core_list_is_read_or_a_documented_error(text):
    with suppress(BindingImpossible):
        usable, _ = machine.usable_cores(made(4, 4), text, 0)
        assert usable.cpus() == parse_cpu_list(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("3-1", "'3-1'"),
        ("0-3,2-5", "'0-3,2-5'"),
        ("4,0", "'4,0'"),
        ("0,0", "'0,0'"),
        ("", "''"),
        ("0 1", "'0 1'"),
        ("0-9", "CPUs 8-9 of '0-9' do not exist here"),
        ("5,7", "CPUs 7 of '5,7' are offline"),
        ("2-5", "CPUs 2-3 of '2-5' are not allowed"),
    ],
)
def test_a_core_list_may_only_have_cores_that_exist_and_are_allowed(text, named):
    whole = made(4, 4)
    allowed = Topology(whole.narrowed([0, 1, 4, 5, 6]).nodes, online=tuple(range(7)), present=tuple(range(8)))
    with pytest.raises(BindingImpossible) as caught:
        machine.usable_cores(allowed, text, 0)
    assert named in caught.value.message


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


def test_the_smallest_cores_are_reserved_and_of_equal_ones_the_lowest():
    assert machine.usable_cores(made(4, capacities=(1024, 446)), None, 1)[1] == (1,)
    assert machine.usable_cores(made(4, threads=2), None, 1)[1] == (0, 4)


def test_each_rank_has_as_many_of_each_kind_of_core_and_almost_equal_ones_are_one_kind():
    shares = machine.divide(made(8, capacities=(1024, 446)), 4)
    assert [sorted(core.capacity for core in share.cores) for share in shares] == [[446, 1024]] * 4
    shares = machine.divide(made(4, capacities=(1024, 1010)), 2)
    assert [share.cpus() for share in shares] == [(0, 1), (2, 3)]


# Machines

MACHINES = pytest.mark.parametrize("name", build.machines())


@MACHINES
def test_nodes_and_first_threads_of_cores(name, root_of):
    root = root_of(name)
    expected = build.load(name)["nodes"]
    nodes = read_nodes(root, allowed_cpus(root))
    assert [(node.number, format_cpu_list(node.cpus)) for node in nodes] == [
        (row["node"], row["cpus"]) for row in expected
    ]
    with_cores = sorted(read_topology(root).nodes, key=lambda node: node.number)
    assert [(node.number, format_cpu_list(core.cpus[0] for core in node.cores)) for node in with_cores] == [
        (row["node"], row["cores"]) for row in expected
    ]


@MACHINES
def test_expected_bindings(name, root_of):
    topology = read_topology(root_of(name))
    for wanted in build.load(name)["bindings"]:
        usable, reserved = machine.usable_cores(
            topology, wanted.get("core_list"), wanted.get("reserve_cores", 0)
        )
        shares = machine.divide(usable, wanted.get("ranks", len(usable.nodes)))
        found = []
        for share in shares:
            policy = share.memory()
            memory = f"{policy.mode} {format_cpu_list(policy.nodes)}".strip()
            found.append([format_cpu_list(share.cpus()), len(share.cores), memory])
        assert found == wanted["expected"]
        unused = usable.cpus() - {cpu for share in shares for cpu in share.cpus()}
        assert format_cpu_list(unused) == wanted.get("unused", "")
        assert format_cpu_list(reserved) == wanted.get("reserved", "")


@MACHINES
def test_an_affinity_given_by_the_caller_counts_instead_of_the_process_s(name, root_of):
    allowed = sorted(parse_cpu_list(build.load(name)["affinity"]))[::2]
    topology = read_topology(root_of(name), allowed)
    cpus = [cpu for node in topology.nodes for core in node.cores for cpu in core.cpus]
    assert sorted(cpus) == allowed


def test_the_node_of_a_device_is_read_from_sys(tmp_path):
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


def test_the_facts_of_this_machine(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    here = machine.this_machine({"ACCEL_CPU_VISIBLE_DEVICES": "0, 3"})
    assert here.topology.cpus() <= os.sched_getaffinity(0)
    assert here.mask == ("0", "3")
    assert Machine.from_json(here.to_json()) == here
    described = machine.accelerator()
    assert (described.name, described.ranks_are_devices) == ("cpu", False)
