# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes the plan: a pure function of the job, the selected slots, the facts of each host, and the accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from accel_core.launch import binding
from accel_core.launch.errors import AffinityConflict, BindingImpossible, InvalidSelection
from accel_core.launch.facts import UNKNOWN, Accelerator, Facts
from accel_core.launch.names import address
from accel_core.launch.plan import Binding, Host, MemoryPolicy, Plan, Program, Rank
from accel_core.vendor import format_cpu_list

#: Each of them binds OpenMP's threads to cores by number, whatever cores the rank has.
CONFLICTS = ("KMP_AFFINITY", "GOMP_CPU_AFFINITY")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """What the command line asks for. environ: the environment of the launcher.

    master_addr: None: the first host of the hostfile, or this machine.
    """

    program: Program
    directory: str
    master_addr: str | None = None
    master_port: int = 29500
    binding: Binding | None = None
    exports: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)


def make(
    job: Job, slots: Mapping[str, Sequence[int]], facts: Mapping[str, Facts | None], accelerator: Accelerator
) -> Plan:
    """Return the plan; raises `BindingImpossible`, `InvalidSelection`, `AffinityConflict`.

    slots: by host, as selected. facts: by host; a host without any completes its part itself (`Host.bound_here`).
    """
    if job.binding:
        check_conflicts(job.environ)
    plan = Plan(
        hosts=(),
        master_addr=job.master_addr or _master(list(slots)),
        master_port=job.master_port,
        program=job.program,
        directory=job.directory,
        binding=job.binding,
        exports=job.exports,
    )
    world = sum(map(len, slots.values()))
    hosts: list[Host] = []
    first = 0
    for name, chosen in slots.items():
        shared: dict[str, str | int] = {
            "MASTER_ADDR": plan.master_addr,
            "MASTER_PORT": plan.master_port,
            "WORLD_SIZE": world,
            "LOCAL_SIZE": len(chosen),
            "LOCAL_WORLD_SIZE": len(chosen),
            "CROSS_RANK": len(hosts),
            "CROSS_SIZE": len(slots),
        }
        ranks = tuple(_rank(first, local, slot, shared) for local, slot in enumerate(chosen))
        host = Host(name, len(hosts), ranks, bound_here=True)
        known = facts.get(name)
        hosts.append(_completed(plan, host, known, accelerator, job.environ) if known else host)
        first += len(chosen)
    return replace(plan, hosts=tuple(hosts), notes=_notes(hosts))


def complete(
    plan: Plan, node_rank: int, facts: Facts, accelerator: Accelerator, environ: Mapping[str, str]
) -> Plan:
    """Return the plan with the ranks of one host completed by its own facts and environment; raises as `make`."""
    host = plan.hosts[node_rank]
    if not host.bound_here:
        return plan
    if plan.binding:
        check_conflicts(environ)
    done = _completed(plan, host, facts, accelerator, environ)
    hosts = (*plan.hosts[:node_rank], done, *plan.hosts[node_rank + 1 :])
    return replace(plan, hosts=hosts, notes=_notes(hosts))


def with_devices(plan: Plan, accelerator: Accelerator) -> Plan:
    """Return the plan with the slots as visible devices of hosts that nobody can ask, nor completes later."""
    hosts = []
    for host in plan.hosts:
        visible: dict[str, str] = {}
        accelerator.set_visible(visible, [str(rank.slot) for rank in host.ranks])
        ranks = (replace(rank, environment={**rank.environment, **visible}) for rank in host.ranks)
        hosts.append(replace(host, ranks=tuple(ranks)) if host.bound_here else host)
    return replace(plan, hosts=tuple(hosts))


def _rank(first: int, local: int, slot: int, shared: Mapping[str, str | int]) -> Rank:
    variables = {"RANK": first + local, "LOCAL_RANK": local, **shared}
    environment = {name: str(value) for name, value in variables.items()}
    return Rank(first + local, local, slot, "", (), 0, (), MemoryPolicy(), environment)


def _completed(
    plan: Plan, host: Host, facts: Facts, accelerator: Accelerator, environ: Mapping[str, str]
) -> Host:
    """Return the host with devices, cores and threads of its ranks."""
    devices = _devices(host, facts, accelerator)
    visible: dict[str, str] = {}
    if devices is not None:
        accelerator.set_visible(visible, devices)
    host = replace(
        host,
        bound_here=False,
        ranks=tuple(
            replace(
                rank,
                device=devices[rank.local_rank] if devices and accelerator.ranks_are_devices else "",
                environment={**rank.environment, **visible},
            )
            for rank in host.ranks
        ),
    )
    if plan.binding:
        return _bound(plan.binding, host, facts, environ)
    if environ.get("OMP_NUM_THREADS") or not facts.topology.nodes:
        return host
    # Without binding each rank would start a thread for every core of the machine.
    threads = {"OMP_NUM_THREADS": str(max(facts.topology.core_count() // len(host.ranks), 1))}
    return replace(
        host,
        ranks=tuple(replace(rank, environment={**rank.environment, **threads}) for rank in host.ranks),
    )


def _devices(host: Host, facts: Facts, accelerator: Accelerator) -> list[str] | None:
    """Return the visible device of each rank; None leaves an inherited mask as it is. Raises `InvalidSelection`.

    An inherited mask is the universe: slot 0 is its first device.
    """
    slots = [rank.slot for rank in host.ranks]
    if facts.mask is None:
        if accelerator.ranks_are_devices and (wrong := [slot for slot in slots if slot >= facts.devices]):
            raise _no_device(host, wrong[0], f"{accelerator.name} sees {facts.devices} devices")
        if not accelerator.restricts and slots != list(range(len(slots))):
            raise _not_chosen(host, slots, accelerator)
        return [str(slot) for slot in slots]
    if accelerator.ranks_are_devices and facts.devices > len(facts.mask):
        # One item of the mask is several devices (tiles of a card): only all of them together can be named.
        if len(slots) == facts.devices:
            return None
        raise _no_device(
            host, slots[-1], f"the mask {','.join(facts.mask)} makes {facts.devices} devices visible"
        )
    count = min(len(facts.mask), facts.devices) if accelerator.ranks_are_devices else len(facts.mask)
    if wrong := [slot for slot in slots if slot >= count]:
        variable = accelerator.visible[0]
        raise _no_device(host, wrong[0], f"{variable}={','.join(facts.mask)} leaves {count} devices")
    return [facts.mask[slot] for slot in slots]


def _no_device(host: Host, slot: int, found: str) -> InvalidSelection:
    return InvalidSelection(
        what=f"there is no device for slot {slot} of {host.name}",
        found=found,
        expected="slots count from 0, over the devices that the visible-devices variable leaves",
        do="select fewer slots, or unset the variable",
    )


def _not_chosen(host: Host, slots: list[int], accelerator: Accelerator) -> InvalidSelection:
    return InvalidSelection(
        what=f"a launcher cannot choose the devices of {host.name}",
        found=f"slots {','.join(map(str, slots))} on {accelerator.name}, whose runtime gives rank i its device i",
        expected="the first slots of a host",
        do="leave out --include and --exclude; set the variable of the runtime that restricts a job to some devices",
    )


def _bound(request: Binding, host: Host, facts: Facts, environ: Mapping[str, str]) -> Host:
    try:
        usable, reserved = binding.usable(facts.topology, request.core_list, request.reserve_cores)
        near = [_node_of(facts, rank.slot) for rank in host.ranks]
        shares = binding.divide(usable, len(host.ranks), near)
    except BindingImpossible as error:
        raise BindingImpossible(
            what=f"{host.name}: {error.what}", found=error.found, expected=error.expected, do=error.do
        ) from error
    ranks = []
    for rank, share in zip(host.ranks, shares, strict=True):
        threads = {"OMP_NUM_THREADS": str(len(share.cores))}
        # Intel's OpenMP runtime keeps idle threads spinning for 200 ms, on cores that torch's own pool needs.
        if "KMP_BLOCKTIME" not in environ:
            threads["KMP_BLOCKTIME"] = "1"
        ranks.append(
            replace(
                rank,
                cpus=share.cpus(),
                cores=len(share.cores),
                numa_nodes=tuple(sorted(node.number for node in share.nodes)),
                memory=share.memory(),
                environment={**rank.environment, **threads},
            )
        )
    given = {cpu for rank in ranks for cpu in rank.cpus}
    return replace(host, ranks=tuple(ranks), unused=tuple(sorted(usable.cpus() - given)), reserved=reserved)


def _node_of(facts: Facts, slot: int) -> int | None:
    node = facts.device_nodes[slot] if slot < len(facts.device_nodes) else UNKNOWN
    return None if node == UNKNOWN else node


def check_conflicts(environ: Mapping[str, str]) -> None:
    """Raise `AffinityConflict` if a variable would bind OpenMP's threads to other cores than the plan."""
    if name := next((name for name in CONFLICTS if environ.get(name)), None):
        raise AffinityConflict(
            what=f"cannot bind ranks to cores while {name} is set",
            found=f"{name}={environ[name]!r}",
            expected=f"{name} unset: it binds OpenMP's threads to cores that a rank may not have",
            do=f"unset {name}, or start without --bind_cores_to_rank",
        )


def _master(hosts: list[str]) -> str:
    if len(hosts) > 1 and _is_loopback(hosts[0]) and not all(map(_is_loopback, hosts)):
        raise InvalidSelection(
            what="the other hosts cannot reach the first one",
            found=f"the first host is {hosts[0]}, an address that means a different machine on each host",
            expected="a name or address of the first host that the others know",
            do="give --master_addr, or name the host so in the hostfile",
        )
    return address(hosts[0])


def _is_loopback(host: str) -> bool:
    return address(host) in ("localhost", "::1") or address(host).startswith("127.")


def _notes(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return a sentence for each set of CPUs that hosts leave unused, with these hosts."""
    unused: dict[tuple[int, ...], list[str]] = {}
    for host in hosts:
        if host.unused:
            unused.setdefault(host.unused, []).append(host.name)
    return tuple(
        f"CPUs {format_cpu_list(cpus)} of {', '.join(names[:4])}"
        f"{f' and {len(names) - 4} more hosts' if len(names) > 4 else ''} belong to no rank: "
        "the ranks of a NUMA node have equally many cores"
        for cpus, names in unused.items()
    )
