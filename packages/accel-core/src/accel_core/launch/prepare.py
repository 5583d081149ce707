# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From options to a plan: reads the hostfile, asks the hosts, and plans."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from accel_core.launch import binding, exports, facts, gather, hostfile, planning, port, program, selection
from accel_core.launch.errors import InvalidPlan, InvalidSelection
from accel_core.launch.facts import Accelerator, Facts
from accel_core.launch.options import IN_CONTAINERS, Options
from accel_core.launch.plan import Binding, Plan
from accel_core.launch.planning import Job
from accel_core.op_builder.source_builder import deepspeed_folder
from accel_core.vendor import format_cpu_list

LOCAL = "localhost"
#: Engines that reach the hosts by ssh, so that the hosts can be asked in advance; "" is the default one.
BY_SSH = ("", "pdsh", "openmpi", "mpich", "impi")


def load(options: Options) -> Plan:
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
        planning.check_conflicts(os.environ)
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
                    do="correct `cpus` of these ranks in the plan, or make it anew with --bind_cores_to_rank",
                )
            owners.update(dict.fromkeys(rank.cpus, rank.rank))


def make(options: Options, environ: Mapping[str, str] = os.environ) -> Plan:
    """Return the plan of a command line; raises the errors of `accel_core.launch.errors`. Starts no rank."""
    pool = hostfile.read(options.hostfile)
    if options.emit is None:
        program.check(options)
    here = facts.local(environ)
    accelerator = facts.accelerator()
    slots = selection.select(
        pool or _own_pool(options, here, accelerator),
        include=options.include,
        exclude=options.exclude,
        num_nodes=options.num_nodes,
        num_slots=options.num_accelerators,
    )
    _check_node_rank(options, list(slots))
    job = _job(options, environ, accelerator, alone=_runs_here(options, list(slots)))
    plan = planning.make(job, slots, _known(options, list(slots), here, job), accelerator)
    plan = replace(plan, notes=(*plan.notes, *_elsewhere(options, list(slots)), *_not_elastic(options)))
    return planning.with_devices(plan, accelerator) if options.emit == "ray" else plan


def _runs_here(options: Options, hosts: list[str]) -> bool:
    """Whether all ranks run on this machine: one host, and no engine that could start them on another."""
    if options.emit:
        return hosts == [LOCAL]
    return len(hosts) == 1 and not options.force_multi and options.launcher in ("", "local")


def _elsewhere(options: Options, hosts: list[str]) -> list[str]:
    """Return a sentence if a hostfile's only host seems to be another machine: as with DeepSpeed it means this one."""
    if not _runs_here(options, hosts) or options.no_ssh or gather.is_this_host(hosts[0]):
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


def _job(options: Options, environ: Mapping[str, str], accelerator: Accelerator, *, alone: bool) -> Job:
    """Return the job. alone: all ranks are on this machine."""
    directory = os.getcwd()
    named = exports.files(environ, Path.home(), Path(directory))
    made = program.make(options)
    if options.emit in IN_CONTAINERS:
        # Neither this machine's folders nor its variables mean anything there, apart from those written down for it.
        exported = exports.collect({}, accelerator, "", named)
        directory = "."
        if not options.no_python:
            made = replace(made, command=("python", *made.command[1:]))
    else:
        exported = exports.collect(environ, accelerator, directory, named)
    return Job(
        program=made,
        directory=directory,
        master_addr=options.master_addr or (planning.LOOPBACK if alone else None),
        master_port=options.master_port or port.DEFAULT,
        binding=Binding(options.bind_core_list, options.reserve_cores) if options.binds else None,
        exports=exported,
        environ=environ,
    )


def _check_node_rank(options: Options, hosts: list[str]) -> None:
    if options.no_ssh and options.node_rank >= len(hosts):
        raise InvalidSelection(
            what=f"there is no host with --node_rank {options.node_rank}",
            found=f"{len(hosts)} hosts: {', '.join(hosts[:8])}",
            expected=f"0 to {len(hosts) - 1}",
            do="correct --node_rank, or add the host to the hostfile",
        )


def _own_pool(options: Options, here: Facts, accelerator: Accelerator) -> dict[str, int]:
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
    return dict.fromkeys(names, min(options.num_accelerators, hostfile.MOST_SLOTS))


def _local_slots(options: Options, here: Facts, accelerator: Accelerator) -> int:
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
        return min(options.num_accelerators, hostfile.MOST_SLOTS)
    machine = here.topology
    if options.binds:
        machine, _ = binding.usable(machine, options.bind_core_list, options.reserve_cores)
    return len(machine.nodes)


def _known(options: Options, hosts: list[str], here: Facts, job: Job) -> dict[str, Facts]:
    """Return the facts of the hosts that can be asked now; the others complete their part of the plan themselves."""
    if options.emit:
        return {hosts[0]: here} if hosts == [LOCAL] else {}
    if options.no_ssh:
        return {hosts[options.node_rank]: here}
    if _runs_here(options, hosts):
        return {hosts[0]: here}
    if options.launcher not in BY_SSH:
        return {}
    own = {name: here for name in hosts if gather.is_this_host(name)}
    if options.no_ssh_check:
        return own
    others = [name for name in hosts if name not in own]
    return {**own, **gather.remote(others, options, job.directory, job.exports)}
