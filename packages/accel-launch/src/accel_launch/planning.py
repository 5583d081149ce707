# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From options to a plan: reads the hostfile, asks the hosts, and decides which rank runs where, and on which cores."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from accel_core.op_builder.source_builder import deepspeed_folder
from accel_core.vendor import format_cpu_list
from accel_launch import machine, ssh
from accel_launch.binding import divide, usable_cores
from accel_launch.errors import (
    AffinityConflict,
    BindingImpossible,
    InvalidArguments,
    InvalidPlan,
    InvalidSelection,
)
from accel_launch.hosts import MOST_SLOTS, read_hostfile, select
from accel_launch.machine import UNKNOWN, Accelerator, Machine
from accel_launch.options import DEFAULT_PORT, IN_CONTAINERS, Options
from accel_launch.plan import LOCAL, Binding, Host, MemoryPolicy, Plan, Program, Rank, address


def _program(options: Options) -> Program:
    """Return the program of the command line."""
    python = () if options.no_python else (sys.executable, "-u", *(("-m",) if options.module else ()))
    return Program((*python, options.script or ""), options.arguments, not options.no_local_rank)


def check_program(options: Options) -> None:
    """Raise `InvalidArguments` if the script or module does not exist on this host."""
    script = options.script or ""
    if "\0" in script or any("\0" in argument for argument in options.arguments):
        raise _missing("an argument with a NUL character", "arguments without it")
    if options.module:
        top = script.partition(".")[0]
        # Of a module of a package only the package is looked for: finding more would import it.
        if not top or not (top in sys.builtin_module_names or _finds(top)):
            raise _missing(
                f"no module {top!r} in {os.getcwd()} or in this Python", "a module's name, for `python -m`"
            )
    elif options.no_python:
        if shutil.which(script) is None:
            raise _missing(f"{script!r} is not an executable file", "a program, with --no_python")
    elif not script or not Path(script).exists():
        raise _missing(f"{script!r} in {os.getcwd()} does not exist", "the path of a Python script")
    elif Path(script).is_dir() and not Path(script, "__main__.py").exists():
        raise _missing(f"{script!r} is a folder without __main__.py", "the path of a Python script")


def _finds(module: str) -> bool:
    finder = importlib.machinery.PathFinder
    return finder.find_spec(module, [os.getcwd(), *filter(None, sys.path)]) is not None


def _missing(found: str, expected: str) -> InvalidArguments:
    return InvalidArguments(
        what="cannot start the program", found=found, expected=expected, do="correct the path or the name"
    )


#: Each of them binds OpenMP's threads to cores by number, whatever cores the rank has.
CONFLICTS = ("KMP_AFFINITY", "GOMP_CPU_AFFINITY")
LOOPBACK = "127.0.0.1"


def arrange(
    plan: Plan,
    slots: Mapping[str, Sequence[int]],
    machines: Mapping[str, Machine],
    accelerator: Accelerator,
    environ: Mapping[str, str],
) -> Plan:
    """Return the plan with hosts and ranks; raises `BindingImpossible`, `InvalidSelection`, `AffinityConflict`.

    plan: what the command line asks for; without `master_addr`: the first host. slots: by host, as selected. machines:
    by host; a host without one completes its part itself (`Host.bound_here`). environ: that of the launcher.
    """
    if plan.binding:
        check_conflicts(environ)
    plan = replace(plan, master_addr=plan.master_addr or _master(list(slots)))
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
        known = machines.get(name)
        hosts.append(_completed(plan, host, known, accelerator, environ) if known else host)
        first += len(chosen)
    return replace(plan, hosts=tuple(hosts), notes=_notes(hosts))


def complete(
    plan: Plan, node_rank: int, machine: Machine, accelerator: Accelerator, environ: Mapping[str, str]
) -> Plan:
    """Return the plan with the ranks of one host completed by its own machine and environment; raises as `arrange`."""
    host = plan.hosts[node_rank]
    if not host.bound_here:
        return plan
    if plan.binding:
        check_conflicts(environ)
    done = _completed(plan, host, machine, accelerator, environ)
    hosts = (*plan.hosts[:node_rank], done, *plan.hosts[node_rank + 1 :])
    return replace(plan, hosts=hosts, notes=_notes(hosts))


def with_devices(plan: Plan, accelerator: Accelerator) -> Plan:
    """Return the plan with the slots as visible devices of hosts that nobody can ask, nor completes later."""
    hosts = []
    for host in plan.hosts:
        visible: dict[str, str] = {}
        accelerator.set_visible(visible, [str(rank.slot) for rank in host.ranks])
        hosts.append(host.with_variables(visible) if host.bound_here else host)
    return replace(plan, hosts=tuple(hosts))


def _rank(first: int, local: int, slot: int, shared: Mapping[str, str | int]) -> Rank:
    variables = {"RANK": first + local, "LOCAL_RANK": local, **shared}
    environment = {name: str(value) for name, value in variables.items()}
    return Rank(first + local, local, slot, "", (), 0, (), MemoryPolicy(), environment)


def _completed(
    plan: Plan, host: Host, machine: Machine, accelerator: Accelerator, environ: Mapping[str, str]
) -> Host:
    """Return the host with devices, cores and threads of its ranks."""
    devices = _devices(host, machine, accelerator)
    visible: dict[str, str] = {}
    if devices is not None:
        accelerator.set_visible(visible, devices)
    names = devices if devices and accelerator.ranks_are_devices else [""] * len(host.ranks)
    ranks = (replace(rank, device=name) for rank, name in zip(host.ranks, names, strict=True))
    host = replace(host, bound_here=False, ranks=tuple(ranks)).with_variables(visible)
    if plan.binding:
        return _bound(plan.binding, host, machine, environ)
    if environ.get("OMP_NUM_THREADS") or not machine.topology.nodes:
        return host
    # Without binding each rank would start a thread for every core of the machine.
    threads = max(machine.topology.core_count() // len(host.ranks), 1)
    return host.with_variables({"OMP_NUM_THREADS": str(threads)})


def _devices(host: Host, machine: Machine, accelerator: Accelerator) -> list[str] | None:
    """Return the visible device of each rank; None leaves an inherited mask as it is. Raises `InvalidSelection`.

    An inherited mask is the universe: slot 0 is its first device.
    """
    slots = [rank.slot for rank in host.ranks]
    if machine.mask is None:
        if accelerator.ranks_are_devices and (wrong := [slot for slot in slots if slot >= machine.devices]):
            raise _no_device(host, wrong[0], f"{accelerator.name} sees {machine.devices} devices")
        if not accelerator.restricts and slots != list(range(len(slots))):
            raise _not_chosen(host, slots, accelerator)
        return [str(slot) for slot in slots]
    if accelerator.ranks_are_devices and machine.devices > len(machine.mask):
        # One item of the mask is several devices (tiles of a card): only all of them together can be named.
        if len(slots) == machine.devices:
            return None
        raise _no_device(
            host, slots[-1], f"the mask {','.join(machine.mask)} makes {machine.devices} devices visible"
        )
    count = min(len(machine.mask), machine.devices) if accelerator.ranks_are_devices else len(machine.mask)
    if wrong := [slot for slot in slots if slot >= count]:
        variable = accelerator.visible[0]
        raise _no_device(host, wrong[0], f"{variable}={','.join(machine.mask)} leaves {count} devices")
    return [machine.mask[slot] for slot in slots]


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


def _bound(request: Binding, host: Host, machine: Machine, environ: Mapping[str, str]) -> Host:
    try:
        usable, reserved = usable_cores(machine.topology, request.core_list, request.reserve_cores)
        near = [_node_of(machine, rank.slot) for rank in host.ranks]
        shares = divide(usable, len(host.ranks), near)
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


def _node_of(machine: Machine, slot: int) -> int | None:
    node = machine.device_nodes[slot] if slot < len(machine.device_nodes) else UNKNOWN
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


#: Engines that reach the hosts by ssh, so that the hosts can be asked in advance; "" is the default one.
BY_SSH = ("", "pdsh", "openmpi", "mpich", "impi")


def load_plan(options: Options) -> Plan:
    """Return the plan of `--plan` (- is standard input), with another master if one is given.

    Raises `InvalidPlan`, `AffinityConflict`, `InvalidSelection`.
    """
    path = options.plan or ""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidPlan(
            what=f"cannot read the plan {path!r}",
            found=getattr(error, "strerror", None) or str(error),
            expected="a file with the output of `accel launch --dry_run --json`",
            do="correct --plan",
        ) from error
    plan = Plan.from_json(text, f"the plan {path!r}")
    _check_node_rank(options, [host.name for host in plan.hosts])
    _check_own_cpus(plan)
    if plan.binding:
        check_conflicts(os.environ)
    return plan.with_master(options.master_addr or plan.master_addr, options.master_port or plan.master_port)


def _check_own_cpus(plan: Plan) -> None:
    for host in plan.hosts:
        owners: dict[int, int] = {}
        for rank in host.ranks:
            if shared := sorted(set(rank.cpus) & owners.keys()):
                raise InvalidPlan(
                    what=f"two ranks of {host.name} would run on the same CPUs",
                    found=f"ranks {owners[shared[0]]} and {rank.rank} both have CPU {format_cpu_list(shared)}",
                    expected="CPUs of its own for each rank that is bound",
                    do="correct `cpus` of these ranks in the plan, or make it again with --bind_cores_to_rank",
                )
            owners.update(dict.fromkeys(rank.cpus, rank.rank))


def make_plan(options: Options, environ: Mapping[str, str] = os.environ) -> Plan:
    """Return the plan of a command line; raises the errors of `accel_launch.errors`. Starts no rank."""
    pool = read_hostfile(options.hostfile)
    if options.emit is None:
        check_program(options)
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
    asked = _asked_for(options, environ, accelerator, alone=_runs_here(options, names))
    plan = arrange(asked, slots, _known(options, names, here, asked), accelerator, environ)
    plan = replace(plan, notes=(*plan.notes, *_elsewhere(options, names), *_not_elastic(options)))
    return with_devices(plan, accelerator) if options.emit == "ray" else plan


def _runs_here(options: Options, hosts: list[str]) -> bool:
    """Whether all ranks run on this machine: one host, and no engine that could start them on another."""
    if options.emit:
        return hosts == [LOCAL]
    return len(hosts) == 1 and not options.force_multi and options.launcher in ("", "local")


def _elsewhere(options: Options, hosts: list[str]) -> list[str]:
    """Return a sentence if a hostfile's only host seems to be another machine: as with DeepSpeed it means this one."""
    if not _runs_here(options, hosts) or options.no_ssh or ssh.is_this_host(hosts[0]):
        return []
    return [
        f"{hosts[0]} is the only host: its ranks run on this machine; --force_multi starts them on {hosts[0]}"
    ]


def _not_elastic(options: Options) -> list[str]:
    """Return a sentence if the installed DeepSpeed refuses a config for elastic training."""
    folder = deepspeed_folder() if options.elastic_training else None
    if folder is None or (folder / "elasticity").is_dir():
        return []
    return [
        "this DeepSpeed has no elastic training (removed in 0.19, #8563): it refuses a config with `elasticity`. "
        "The launcher restarts ranks all the same; leave that section out"
    ]


def _asked_for(
    options: Options, environ: Mapping[str, str], accelerator: Accelerator, *, alone: bool
) -> Plan:
    """Return the plan without its hosts. alone: all ranks are on this machine."""
    directory = os.getcwd()
    files = ssh.variable_files(environ, Path.home(), Path(directory))
    program = _program(options)
    if options.emit in IN_CONTAINERS:
        # Neither this machine's folders nor its variables mean anything there, apart from those written down for it.
        exports = ssh.exported_variables({}, accelerator, "", files)
        directory = "."
        if not options.no_python:
            program = replace(program, command=("python", *program.command[1:]))
    else:
        exports = ssh.exported_variables(environ, accelerator, directory, files)
    return Plan(
        hosts=(),
        master_addr=options.master_addr or (LOOPBACK if alone else ""),
        master_port=options.master_port or DEFAULT_PORT,
        program=program,
        directory=directory,
        binding=Binding(options.bind_core_list, options.reserve_cores) if options.binds else None,
        exports=exports,
    )


def _check_node_rank(options: Options, hosts: list[str]) -> None:
    if options.no_ssh and options.node_rank >= len(hosts):
        raise InvalidSelection(
            what=f"there is no host with --node_rank {options.node_rank}",
            found=f"{len(hosts)} hosts: {', '.join(hosts[:8])}",
            expected=f"0 to {len(hosts) - 1}",
            do="correct --node_rank, or add the host to the hostfile",
        )


def _own_pool(options: Options, here: Machine, accelerator: Accelerator) -> dict[str, int]:
    """Return the slots without a hostfile: of this machine, or of as many machines as a cluster is to give."""
    if options.emit is None or (options.emit == "ray" and options.num_nodes <= 1):
        return {LOCAL: _local_slots(options, here, accelerator)}
    if options.num_accelerators <= 0:
        raise InvalidSelection(
            what=f"the number of ranks for --emit {options.emit} is unknown",
            found="neither --hostfile nor --num_accelerators",
            expected="the number of ranks on each machine of the cluster",
            do="add --num_accelerators, and --num_nodes for several machines",
        )
    names = (f"node-{number}" for number in range(max(options.num_nodes, 1)))
    return dict.fromkeys(names, min(options.num_accelerators, MOST_SLOTS))


def _local_slots(options: Options, here: Machine, accelerator: Accelerator) -> int:
    """Return the number of slots of this machine: its visible devices; for the CPU what is asked for."""
    if accelerator.ranks_are_devices:
        if here.devices:
            return here.devices
        raise InvalidSelection(
            what="there is no device to start ranks on",
            found=f"{accelerator.name} sees 0 devices",
            expected="at least one",
            do=f"run accel doctor; check {accelerator.visible[0] if accelerator.restricts else 'what hides devices'}",
        )
    if here.mask is not None:
        return len(here.mask)
    if options.num_accelerators > 0:
        return min(options.num_accelerators, MOST_SLOTS)
    machine = here.topology
    if options.binds:
        machine, _ = usable_cores(machine, options.bind_core_list, options.reserve_cores)
    return len(machine.nodes)


def _known(options: Options, hosts: list[str], here: Machine, asked: Plan) -> dict[str, Machine]:
    """Return the machines of the hosts that can be asked now; the others complete their part of the plan themselves."""
    if options.emit:
        return {hosts[0]: here} if hosts == [LOCAL] else {}
    if options.no_ssh:
        return {hosts[options.node_rank]: here}
    if _runs_here(options, hosts):
        return {hosts[0]: here}
    if options.launcher not in BY_SSH:
        return {}
    own = {name: here for name in hosts if ssh.is_this_host(name)}
    if options.no_ssh_check:
        return own
    others = [name for name in hosts if name not in own]
    return {**own, **ssh.query_hosts(others, options, asked.directory, asked.exports)}
