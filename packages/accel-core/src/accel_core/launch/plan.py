# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a job as data: which rank runs where, on which cores, with which environment.

Every engine carries out the same plan, so that a script sees the same variables under each of them. A plan says what
runs; how it is started (the engine, ssh, logs) is not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from accel_core.launch.codec import AS_LIST, InvalidData, from_data, to_data
from accel_core.launch.errors import InvalidPlan
from accel_core.launch.names import is_address, is_host_name, is_secret, is_variable_name, machine_name

#: Increased when a field changes its meaning; a plan of another version is refused.
VERSION = 1


@dataclass(frozen=True)
class MemoryPolicy:
    """Where a rank's memory comes from.

    `bind`: only from `nodes`. `preferred`: from `nodes` while they have free memory, then from anywhere. `default`:
    the kernel's policy, the node of the CPU that touches a page first; `nodes` is empty.
    """

    mode: Literal["default", "bind", "preferred"] = "default"
    nodes: tuple[int, ...] = field(default=(), metadata=AS_LIST)


@dataclass(frozen=True)
class Rank:
    """One process of the job.

    slot: number on the host, as in `--include host:slot`. device: what the accelerator's visible-devices variable
    calls the rank's device; empty if ranks of this accelerator are no devices. cpus: hardware threads to run on,
    SMT siblings together; empty: not bound. cores: physical cores among them. numa_nodes: nodes of these cores.
    environment: every variable that the launcher sets for the rank.
    """

    rank: int
    local_rank: int
    slot: int
    device: str
    cpus: tuple[int, ...] = field(metadata=AS_LIST)
    cores: int
    numa_nodes: tuple[int, ...] = field(metadata=AS_LIST)
    memory: MemoryPolicy
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Host:
    """One machine. `node_rank` is its position in the plan.

    bound_here: the host's topology was unknown when the plan was made, and its agent completes the ranks, by
    `accel_core.launch.planning.complete`. unused: allowed CPUs that no rank received. reserved: those of
    `--reserve_cores`.
    """

    name: str
    node_rank: int
    ranks: tuple[Rank, ...]
    bound_here: bool = False
    unused: tuple[int, ...] = field(default=(), metadata=AS_LIST)
    reserved: tuple[int, ...] = field(default=(), metadata=AS_LIST)


@dataclass(frozen=True)
class Program:
    """What each rank executes: `command`, `--local_rank=N` if `pass_local_rank`, then `arguments`."""

    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    pass_local_rank: bool = True


@dataclass(frozen=True)
class Binding:
    """The requested binding: CPUs of `--bind_core_list` (None: all allowed ones), and cores to keep free per node."""

    core_list: str | None = None
    reserve_cores: int = 0


@dataclass(frozen=True)
class Plan:
    """A job.

    binding: None if ranks are not bound. exports: variables of the launcher's environment that ranks on other
    hosts need as well; those of a rank win. directory: where the program runs. notes: sentences for the user, such
    as unused cores.
    """

    hosts: tuple[Host, ...]
    master_addr: str
    master_port: int
    program: Program
    directory: str
    binding: Binding | None = None
    exports: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    version: int = VERSION

    @property
    def world_size(self) -> int:
        """Return the number of ranks of all hosts."""
        return sum(len(host.ranks) for host in self.hosts)

    def ranks(self) -> Iterator[tuple[Host, Rank]]:
        """Yield each rank with its host, in the order of global ranks."""
        return ((host, rank) for host in self.hosts for rank in host.ranks)

    def secrets(self) -> list[str]:
        """Return the names of exported variables that look like secrets."""
        return [name for name, value in self.exports.items() if is_secret(name, value)]

    def command(self, rank: Rank) -> tuple[str, ...]:
        """Return the argument list of a rank."""
        local = (f"--local_rank={rank.local_rank}",) if self.program.pass_local_rank else ()
        return (*self.program.command, *local, *self.program.arguments)

    def with_master(self, address: str, port: int) -> Plan:
        """Return the plan with another address and port of the first host, in the ranks' environment, too."""
        variables = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        hosts = (
            replace(
                host,
                ranks=tuple(
                    replace(rank, environment={**rank.environment, **variables}) for rank in host.ranks
                ),
            )
            for host in self.hosts
        )
        return replace(self, master_addr=address, master_port=port, hosts=tuple(hosts))

    def to_json(self) -> str:
        """Return the plan as indented JSON; `from_json` reads it."""
        return json.dumps(to_data(self), indent=2)

    @classmethod
    def from_json(cls, text: str, source: str = "the plan") -> Plan:
        """Return the plan in `text`; raises `InvalidPlan`, with `source`."""
        try:
            plan = from_data(cls, json.loads(text), "plan")
            _check(plan)
        except (ValueError, RecursionError) as error:
            raise InvalidPlan(
                what=f"cannot read {source}",
                found=str(error) or type(error).__name__,
                expected=f"a plan of version {VERSION}, as `accel launch --dry_run --json` prints it",
                do="make the plan anew with this accel-core",
            ) from error
        return plan


def _check(plan: Plan) -> None:
    """Raise `InvalidData` where the plan's parts contradict each other."""
    if plan.version != VERSION:
        raise InvalidData(f"plan.version: {plan.version}, not {VERSION}")
    if not plan.program.command:
        raise InvalidData("plan.program.command: empty, not a command")
    if not 0 <= plan.master_port <= 65535:
        raise InvalidData(f"plan.master_port: {plan.master_port}, not a port")
    if not is_address(plan.master_addr):
        raise InvalidData(f"plan.master_addr: {plan.master_addr!r}, not the name or address of a host")
    for position, host in enumerate(plan.hosts):
        if host.node_rank != position or not host.ranks:
            raise InvalidData(f"plan.hosts[{position}]: node rank {host.node_rank}, {len(host.ranks)} ranks")
        if [rank.local_rank for rank in host.ranks] != list(range(len(host.ranks))):
            raise InvalidData(f"plan.hosts[{position}]: local ranks that are not 0, 1, 2, …")
    if not plan.hosts or [rank.rank for _, rank in plan.ranks()] != list(range(plan.world_size)):
        raise InvalidData("plan.hosts: global ranks that are not 0, 1, 2, …")
    for host in plan.hosts:
        if not is_host_name(host.name):
            raise InvalidData(f"plan.hosts[{host.node_rank}].name: {host.name!r}, not the name of a host")
    if len({machine_name(host.name) for host in plan.hosts}) < len(plan.hosts):
        raise InvalidData("plan.hosts: a machine twice")
    if plan.binding is not None and plan.binding.reserve_cores < 0:
        raise InvalidData(f"plan.binding.reserve_cores: {plan.binding.reserve_cores}, not a number of cores")
    for _, rank in plan.ranks():
        _check_rank(plan, rank)
    for variables in (plan.exports, *(rank.environment for _, rank in plan.ranks())):
        if wrong := [name for name in variables if not is_variable_name(name)]:
            raise InvalidData(f"an environment: {wrong[0]!r}, not the name of a variable")


def _check_rank(plan: Plan, rank: Rank) -> None:
    if rank.slot < 0:
        raise InvalidData(f"plan: rank {rank.rank}: slot {rank.slot}, not a slot of a host")
    known = {"RANK": rank.rank, "LOCAL_RANK": rank.local_rank, "WORLD_SIZE": plan.world_size}
    for name, number in known.items():
        if rank.environment.get(name, str(number)) != str(number):
            raise InvalidData(f"plan: rank {rank.rank}: {name}={rank.environment[name]!r}, not {number}")
