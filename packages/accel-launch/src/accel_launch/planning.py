# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From options to a plan: reads the hostfile, asks the hosts, and decides which rank runs where, and on which cores."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from accel_core.vendor import format_cpu_list, launched
from accel_launch import machine, ssh
from accel_launch.errors import BindingImpossible, InvalidArguments
from accel_launch.machine import Accelerator, Machine, divide, usable_cores
from accel_launch.options import DEFAULT_PORT, Options
from accel_launch.plan import (
    LOCAL,
    Binding,
    Host,
    Plan,
    Program,
    Rank,
    address,
    is_host_name,
    is_loopback,
)

#: Each of them binds OpenMP's threads to cores by number, whatever cores the rank has.
CONFLICTS = ("KMP_AFFINITY", "GOMP_CPU_AFFINITY")
#: Engines that reach the hosts by ssh, so that the hosts can be asked in advance; "" is the default one.
BY_SSH = ("", "pdsh", "openmpi", "mpich", "impi")
#: DeepSpeed's default; used if it exists and no other is named.
DEFAULT_HOSTFILE = "/job/hostfile"
#: More is a typing error, and would fill the memory.
MOST_SLOTS = 4096
_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>[0-9]{1,9})")


def make_plan(options: Options, environ: Mapping[str, str] = os.environ) -> Plan:
    """Return the plan of a command line; raises the errors of `accel_launch.errors`. Starts no rank."""
    pool = read_hostfile(options.hostfile)
    here, accelerator = machine.this_machine(environ), machine.accelerator()
    slots = select(
        pool or _own_pool(options, here, accelerator),
        include=options.include,
        exclude=options.exclude,
        num_nodes=options.num_nodes,
        num_slots=options.num_accelerators,
    )
    names = list(slots)
    _check_node_rank(options, names)
    # No engine could start the ranks on another host.
    alone = (
        len(names) == 1 and not (options.emit or options.force_multi) and options.launcher in ("", "local")
    )
    plan = _without_hosts(options, environ, accelerator, alone)
    plan = arrange(plan, slots, _known(options, names, here, plan, alone), accelerator, environ)
    notes = list(plan.notes)
    if alone and not options.no_ssh and not ssh.is_this_host(names[0]):
        notes.append(
            f"{names[0]} is the only host: its ranks run on this machine; --force_multi starts them on {names[0]}"
        )
    outer = launched(environ)
    if outer.rank is not None and (outer.size or 1) > 1 and not options.no_ssh and options.emit is None:
        notes.append(
            f"this launcher is itself rank {outer.rank} of {outer.size} of {outer.launcher.name}, each of which starts "
            "the whole job: start it once, or start the script without it"
        )
    return replace(plan, notes=tuple(notes))


def load_plan(options: Options) -> Plan:
    """Return the plan of `--plan` (- is standard input), with another master if one is given.

    Raises `InvalidArguments`, `BindingImpossible`.
    """
    path = options.plan or ""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidArguments(
            f"cannot read the plan {path!r}: {getattr(error, 'strerror', None) or str(error)}; expected a "
            "file with the output of `accel launch --dry_run --json`",
            do="correct --plan",
        ) from error
    plan = Plan.from_json(text, f"the plan {path!r}")
    _check_node_rank(options, [host.name for host in plan.hosts])
    if plan.binding:
        check_conflicts(os.environ)
    port = options.master_port or plan.master_port
    return replace(plan, master_addr=options.master_addr or plan.master_addr, master_port=port)


def check_conflicts(environ: Mapping[str, str]) -> None:
    """Raise `BindingImpossible` if a variable would bind OpenMP's threads to other cores than the plan."""
    if name := next((name for name in CONFLICTS if environ.get(name)), None):
        raise BindingImpossible(
            f"cannot bind ranks to cores while {name} is set: {name}={environ[name]!r}; expected {name} "
            "unset: it binds OpenMP's threads to cores that a rank may not have",
            do=f"unset {name}, or start without --bind_cores_to_rank",
        )


def _check_node_rank(options: Options, hosts: list[str]) -> None:
    if options.no_ssh and options.node_rank >= len(hosts):
        raise InvalidArguments(
            f"there is no host with --node_rank {options.node_rank}: {len(hosts)} hosts: "
            f"{', '.join(hosts[:8])}; expected 0 to {len(hosts) - 1}",
            do="correct --node_rank, or add the host to the hostfile",
        )


def _without_hosts(
    options: Options, environ: Mapping[str, str], accelerator: Accelerator, alone: bool
) -> Plan:
    """Return the plan without its hosts. alone: all ranks are on this machine."""
    directory, python = os.getcwd(), sys.executable
    files = ssh.variable_files(environ, Path.home(), Path(directory))
    if options.emit == "k8s":
        # Neither this machine's folders nor its variables mean anything there, apart from those written down for it.
        exports = ssh.exported_variables({}, accelerator, "", files)
        directory, python = ".", "python"
    else:
        exports = ssh.exported_variables(environ, accelerator, directory, files)
    start = () if options.no_python else (python, "-u", *(("-m",) if options.module else ()))
    return Plan(
        hosts=(),
        master_addr=options.master_addr or ("127.0.0.1" if alone else ""),
        master_port=options.master_port or DEFAULT_PORT,
        program=Program((*start, options.script or ""), options.arguments, not options.no_local_rank),
        directory=directory,
        binding=Binding(options.bind_core_list, options.reserve_cores) if options.binds else None,
        exports=exports,
    )


def _own_pool(options: Options, here: Machine, accelerator: Accelerator) -> dict[str, int]:
    """Return the slots without a hostfile: of this machine, or of as many machines as a cluster is to give."""
    asked = min(options.num_accelerators, MOST_SLOTS)
    if options.emit is not None:
        if asked <= 0:
            raise InvalidArguments(
                f"the number of ranks for --emit {options.emit} is unknown: neither --hostfile nor "
                "--num_accelerators",
                do="add --num_accelerators, and --num_nodes for several machines",
            )
        return {f"node-{number}": asked for number in range(max(options.num_nodes, 1))}
    count = here.devices if accelerator.ranks_are_devices else None if here.mask is None else len(here.mask)
    if count == 0:
        hidden_by = accelerator.visible[0] if accelerator.restricts else "what hides devices"
        raise InvalidArguments(
            f"there is no device to start ranks on: {accelerator.name} sees 0 devices",
            do=f"run accel doctor; check {hidden_by}",
        )
    if count is not None:
        return {LOCAL: count}
    if asked > 0:
        return {LOCAL: asked}
    topology = here.topology
    if options.binds:
        topology, _ = usable_cores(topology, options.bind_core_list, options.reserve_cores)
    return {LOCAL: len(topology.nodes)}


def _known(options: Options, hosts: list[str], here: Machine, plan: Plan, alone: bool) -> dict[str, Machine]:
    """Return the machines of the hosts that can be asked now; the others complete their part of the plan themselves."""
    if options.no_ssh and not options.emit:
        return {hosts[options.node_rank]: here}
    if alone:
        return {hosts[0]: here}
    if options.emit or options.launcher not in BY_SSH:
        return {}
    own = {name: here for name in hosts if ssh.is_this_host(name)}
    if options.no_ssh_check:
        return own
    others = [name for name in hosts if name not in own]
    return {**own, **ssh.query_hosts(others, options, plan.directory, plan.exports)}


def arrange(
    plan: Plan,
    slots: Mapping[str, Sequence[int]],
    machines: Mapping[str, Machine],
    accelerator: Accelerator,
    environ: Mapping[str, str],
) -> Plan:
    """Return the plan with hosts and ranks; raises `BindingImpossible`, `InvalidArguments`.

    plan: what the command line asks for; without `master_addr`: the first host. slots: by host, as selected. machines:
    by host; a host without one completes its part itself (`Host.bound_here`). environ: that of the launcher.
    """
    if plan.binding:
        check_conflicts(environ)
    names = list(slots)
    if not plan.master_addr and is_loopback(names[0]) and not all(map(is_loopback, names)):
        raise InvalidArguments(
            f"the other hosts cannot reach the first one: the first host is {names[0]}, an address that "
            "means a different machine on each host",
            do="give --master_addr, or name the host so in the hostfile",
        )
    plan = replace(plan, master_addr=plan.master_addr or address(names[0]))
    hosts: list[Host] = []
    first = 0
    for name, chosen in slots.items():
        ranks = tuple(Rank(first + local, local, slot) for local, slot in enumerate(chosen))
        hosts.append(Host(name, len(hosts), ranks, bound_here=True))
        first += len(chosen)
    plan = replace(plan, hosts=tuple(hosts))
    for host in hosts:
        if known := machines.get(host.name):
            plan = complete(plan, host.node_rank, known, accelerator, environ)
    remarks = (f"{name}: {remark}" for name in names if name in machines for remark in machines[name].remarks)
    return replace(plan, notes=(*plan.notes, *remarks))


def complete(
    plan: Plan, node_rank: int, machine: Machine, accelerator: Accelerator, environ: Mapping[str, str]
) -> Plan:
    """Return the plan with devices, cores and threads of the ranks of one host; raises as `arrange`.

    machine, environ: those of the host.
    """
    host = plan.hosts[node_rank]
    if not host.bound_here:
        return plan
    devices = _devices(host, machine, accelerator)
    visible: dict[str, str] = {}
    if devices is not None:
        accelerator.set_visible(visible, devices)
    names = devices if devices and accelerator.ranks_are_devices else [""] * len(host.ranks)
    ranks = (replace(rank, device=name) for rank, name in zip(host.ranks, names, strict=True))
    host = replace(host, bound_here=False, ranks=tuple(ranks)).with_variables(visible)
    if plan.binding:
        check_conflicts(environ)
        host = _bound(plan.binding, host, machine, environ)
    host = _with_threads(host, machine, environ)
    hosts = (*plan.hosts[:node_rank], host, *plan.hosts[node_rank + 1 :])
    return replace(plan, hosts=hosts, notes=_notes(hosts))


def _devices(host: Host, machine: Machine, accelerator: Accelerator) -> list[str] | None:
    """Return the visible device of each rank; None leaves an inherited mask as it is. Raises `InvalidArguments`.

    An inherited mask is the universe: slot 0 is its first device.
    """
    slots = [rank.slot for rank in host.ranks]
    mask, count = machine.mask, machine.devices
    # Numbers of a later variable would count among the devices of a mask.
    fixed = machine.later or ("" if accelerator.restricts else accelerator.name)
    if (
        mask is None
        and fixed
        and (slots != list(range(len(slots))) or (machine.later and len(slots) > count))
    ):
        raise InvalidArguments(
            f"a launcher cannot choose the devices of {host.name}: slots {format_cpu_list(slots)} with "
            f"{fixed}, which gives rank i the device i of {count}; expected the first slots of a host",
            do="leave out --include and --exclude, or restrict the job by a visible-devices variable",
        )
    if machine.later:
        return None
    if mask is None and not accelerator.ranks_are_devices:
        return [str(slot) for slot in slots]
    found = f"{accelerator.name} sees {count} devices"
    if mask is not None:
        found = f"{accelerator.visible[0]}={','.join(mask)} leaves {count} devices"
        if accelerator.ranks_are_devices and count > len(mask):
            # One item of the mask is several devices (tiles of a card): only all of them together can be named.
            if len(slots) == count:
                return None
            count = 0
        else:
            count = min(len(mask), count) if accelerator.ranks_are_devices else len(mask)
    if wrong := [slot for slot in slots if slot >= count]:
        raise InvalidArguments(
            f"there is no device for slot {wrong[0]} of {host.name}: {found}; expected slots count from "
            "0, over the devices that the visible-devices variable leaves",
            do="select fewer slots, or unset the variable",
        )
    return [str(slot) if mask is None else mask[slot] for slot in slots]


def _bound(request: Binding, host: Host, machine: Machine, environ: Mapping[str, str]) -> Host:
    nodes = dict(enumerate(machine.device_nodes))
    try:
        usable, reserved = usable_cores(machine.topology, request.core_list, request.reserve_cores)
        shares = divide(usable, len(host.ranks), [nodes.get(rank.slot) for rank in host.ranks])
    except BindingImpossible as error:
        raise BindingImpossible(f"{host.name}: {error.message}", do=error.do) from error
    # Intel's OpenMP runtime keeps idle threads spinning for 200 ms, on cores that torch's own pool needs.
    idle = {} if "KMP_BLOCKTIME" in environ else {"KMP_BLOCKTIME": "1"}
    ranks = tuple(
        replace(
            rank,
            cpus=share.cpus(),
            cores=len(share.cores),
            numa_nodes=tuple(sorted(node.number for node in share.nodes)),
            memory=share.memory(),
            environment={**rank.environment, **idle},
        )
        for rank, share in zip(host.ranks, shares, strict=True)
    )
    given = {cpu for rank in ranks for cpu in rank.cpus}
    return replace(host, ranks=ranks, unused=tuple(sorted(usable.cpus() - given)), reserved=reserved)


def _with_threads(host: Host, machine: Machine, environ: Mapping[str, str]) -> Host:
    """Return the host with OMP_NUM_THREADS in the environment of its ranks."""
    # A rank that is not bound would start a thread for every core of the machine. It inherits the user's value.
    known = not environ.get("OMP_NUM_THREADS") and machine.topology.nodes
    share = max(machine.topology.core_count() // len(host.ranks), 1) if known else 0
    ranks = []
    for rank in host.ranks:
        number = rank.cores or share
        own = {"OMP_NUM_THREADS": str(number)} if number else {}
        ranks.append(replace(rank, environment={**rank.environment, **own}))
    return replace(host, ranks=tuple(ranks))


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


# ------------------------------------------------------- the hostfile, and what options select of it


def read_hostfile(named: str | None) -> dict[str, int] | None:
    """Return the number of slots by host, in the file's order; None without a hostfile.

    named: None if no `--hostfile` was given; then the default one is used, if it exists. Raises `InvalidArguments`.
    """
    if named is None and not Path(DEFAULT_HOSTFILE).is_file():
        return None
    path = named if named is not None else DEFAULT_HOSTFILE
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidArguments(
            f"cannot read the hostfile {path!r}: {getattr(error, 'strerror', None) or str(error)}; "
            "expected a text file with a line `worker-0 slots=4` for each host",
            do="correct --hostfile, or leave it out to use this machine alone",
        ) from error
    return parse_hostfile(text, path)


def parse_hostfile(text: str, source: str = "hostfile") -> dict[str, int]:
    """Return the number of slots by host; raises `InvalidArguments` with `source`, number and text of the line."""
    hosts: dict[str, int] = {}
    lines: dict[str, int] = {}
    complaint = ""
    for number, line in enumerate(text.split("\n"), 1):
        content = re.sub(r"(^|\s)#.*", "", line).strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        host = content.split()[0]
        if not is_host_name(host):
            complaint = f"{host[:80]!r} is not the name of a host"
        elif not match:
            complaint = "`slots=` and a whole number do not follow the host, or something follows them"
        elif not 0 < int(match["slots"]) <= MOST_SLOTS:
            complaint = f"{match['slots']} slots; a host has 1 to {MOST_SLOTS}"
        elif (name := address(host).casefold()) in lines:
            complaint = f"{host} is on line {lines[name]} already"
        else:
            hosts[host], lines[name] = int(match["slots"]), number
            continue
        complaint = f"{source}:{number}: {line.strip()[:200]!r}\n{complaint}"
        break
    if complaint or not hosts:
        raise InvalidArguments(
            f"cannot use the hostfile: {complaint or f'{source}: no line with a host'}; expected a line "
            "`worker-0 slots=4` for each host, each host once; comments begin with #",
            do="correct the line",
        )
    return hosts


Slots = dict[str, tuple[int, ...]]


def select(
    pool: Mapping[str, int], *, include: str = "", exclude: str = "", num_nodes: int = -1, num_slots: int = -1
) -> Slots:
    """Return the selected slots by host, in the pool's order; raises `InvalidArguments`.

    pool: number of slots by host. -1: not given.
    """
    filters = {"--include": include, "--exclude": exclude}
    numbers = {"--num_nodes": num_nodes, "--num_accelerators": num_slots}
    given = [option for option, text in filters.items() if text]
    counts = [option for option, number in numbers.items() if number != -1]
    slots = {host: tuple(range(number)) for host, number in pool.items()}
    if len(given) > 1 or (given and counts):
        raise _refused(
            "",
            " and ".join(given + counts),
            "one of --include, --exclude, or numbers",
            "leave out all but one",
        )
    if not given:
        return _first(slots, num_nodes, num_slots)
    named = _named(filters[given[0]], given[0], slots)
    if include:
        return {host: tuple(sorted(named[host])) for host in slots if host in named}
    kept = {
        host: tuple(slot for slot in own if slot not in named.get(host, ())) for host, own in slots.items()
    }
    if not any(kept.values()):
        raise _refused("", "--exclude names all of them", "at least one slot that is left", "exclude less")
    return {host: own for host, own in kept.items() if own}


def _named(text: str, option: str, slots: Slots) -> dict[str, set[int]]:
    """Return the named slots by host; raises `InvalidArguments`."""
    hosts = "|".join(map(re.escape, sorted(slots, key=len, reverse=True)))
    # `user@host` has the separator in it.
    spec = re.compile(rf"(?P<host>{hosts})(:(?P<slots>[0-9]{{1,9}}(,[0-9]{{1,9}})*))?(@(?!$)|$)")
    named: dict[str, set[int]] = {}
    rest, found = text, ""
    while rest and not found:
        if match := spec.match(rest):
            host, chosen = match["host"], match["slots"]
            own = set(slots[host]) if chosen is None else set(map(int, chosen.split(",")))
            if wrong := sorted(own.difference(slots[host])):
                found = f"no slot {wrong[0]} on {host}, which has {len(slots[host])}"
            named.setdefault(host, set()).update(own)
            rest = rest[match.end() :]
        else:
            found = f"{rest[:80]!r} does not begin with one of the hosts and its slots"
    if found:
        there = ", ".join(list(slots)[:8]) + (f" and {len(slots) - 8} more" if len(slots) > 8 else "")
        raise _refused(
            f" by {option} {text[:200]!r}",
            found,
            f"HOST or HOST:SLOT,SLOT, several joined by @, of the hosts {there}; slots count from 0",
            f"correct {option}, or add the host to the hostfile",
        )
    return named


def _first(slots: Slots, num_nodes: int, num_slots: int) -> Slots:
    """Return the first hosts, and of each the first slots."""
    first = slots if num_nodes == -1 else dict(list(slots.items())[: max(num_nodes, 1)])
    for option, number, most, things in (
        ("--num_nodes", num_nodes, len(slots), "hosts to choose from"),
        ("--num_accelerators", num_slots, min(map(len, first.values())), "slots on each of these hosts"),
    ):
        if number != -1 and not 0 < number <= most:
            raise _refused(
                f" by {option} {number}",
                f"{most} {things}",
                f"1 to {most}",
                f"correct {option}, or give the hosts and slots in a --hostfile",
            )
    return {host: own[: num_slots if num_slots != -1 else None] for host, own in first.items()}


def _refused(option: str, found: str, expected: str, do: str) -> InvalidArguments:
    return InvalidArguments(f"cannot select hosts and slots{option}: {found}; expected {expected}", do=do)
