# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a job as data: which rank runs where, on which cores, with which environment.

Every engine carries out the same plan, so that a script sees the same variables under each of them. A plan says what
runs; how it is started (the engine, ssh, logs) is not part of it. As JSON it is checked field by field: it may
have been edited.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from accel_core.data import InvalidData, NumberList, from_data, to_data
from accel_launch.errors import InvalidArguments

#: The only host of a plan that was made without a hostfile.
LOCAL = "localhost"
#: Names that may stand in a command line for another host have no character that a shell or ssh interprets:
#: user@host, host, address; an IPv6 address in brackets. No leading hyphen, which ssh would take for an option.
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])")
_SECRET = re.compile(
    r"(^|_)(\w*KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|AUTH)(_|$)", re.IGNORECASE
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def is_host_name(text: str) -> bool:
    """True if the text is the name or address of a host, with or without a user."""
    return len(text) <= 320 and _HOST.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """True if the text is the name or address of a host; an IPv6 address may be without brackets."""
    return "@" not in text and (is_host_name(text) or is_host_name(f"[{text}]"))


def is_variable_name(text: str) -> bool:
    """True if every shell takes the text as the name of an environment variable."""
    return text.isascii() and text.isidentifier()


def address(host: str) -> str:
    """Return the host's address for a connection: without user, and without the brackets of IPv6."""
    return host.rpartition("@")[2].strip("[]")


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the host's IP address if it is one, or `localhost`; None for a name."""
    try:
        return ipaddress.ip_address("127.0.0.1" if address(host) == LOCAL else address(host))
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """True if each machine takes the host for itself."""
    found = ip_address(host)
    return found is not None and found.is_loopback


#: Increased when a field changes its meaning; a plan of another version is refused.
VERSION = 1


@dataclass(frozen=True)
class MemoryPolicy:
    """Where a rank's memory comes from.

    `bind`: only from `nodes`. `preferred`: from `nodes` while they have free memory, then from anywhere. `default`:
    the kernel's policy, the node of the CPU that touches a page first; `nodes` is empty.
    """

    mode: Literal["default", "bind", "preferred"] = "default"
    nodes: NumberList = ()


@dataclass(frozen=True)
class Rank:
    """One process of the job.

    slot: number on the host, as in `--include host:slot`. device: what the accelerator's visible-devices variable
    calls the rank's device; empty if ranks of this accelerator are not devices. cpus: hardware threads to run on,
    SMT siblings together; empty: not bound. cores: physical cores among them. numa_nodes: nodes of these cores.
    environment: variables for this rank alone; `Plan.variables` has all.
    """

    rank: int
    local_rank: int
    slot: int
    device: str = ""
    cpus: NumberList = ()
    cores: int = 0
    numa_nodes: NumberList = ()
    memory: MemoryPolicy = MemoryPolicy()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """One machine. `node_rank` is its position in the plan.

    bound_here: the host's topology was unknown when the plan was made, and its guard completes the ranks, by
    `planning.complete`. unused: allowed CPUs that no rank received. reserved: those of
    `--reserve_cores`.
    """

    name: str
    node_rank: int
    ranks: tuple[Rank, ...]
    bound_here: bool = False
    unused: NumberList = ()
    reserved: NumberList = ()

    def with_variables(self, variables: Mapping[str, str]) -> Host:
        """Return the host with these variables in the environment of each rank."""
        ranks = (replace(rank, environment={**rank.environment, **variables}) for rank in self.ranks)
        return replace(self, ranks=tuple(ranks))


@dataclass(frozen=True)
class Program:
    """Command line of each rank: `command`, `--local_rank=N` if `pass_local_rank`, then `arguments`."""

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
        return [
            name
            for name, value in self.exports.items()
            if _SECRET.search(name) or _URL_WITH_PASSWORD.search(value)
        ]

    def command(self, rank: Rank) -> tuple[str, ...]:
        """Return the argument list of a rank."""
        local = (f"--local_rank={rank.local_rank}",) if self.program.pass_local_rank else ()
        return (*self.program.command, *local, *self.program.arguments)

    def variables(self, host: Host, rank: Rank) -> dict[str, str]:
        """Return every variable that the launcher sets for a rank."""
        numbers = {
            "RANK": rank.rank,
            "LOCAL_RANK": rank.local_rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_SIZE": len(host.ranks),
            "LOCAL_WORLD_SIZE": len(host.ranks),
            "CROSS_RANK": host.node_rank,
            "CROSS_SIZE": len(self.hosts),
            "MASTER_PORT": self.master_port,
        }
        own = {name: str(number) for name, number in numbers.items()}
        return {**rank.environment, **own, "MASTER_ADDR": self.master_addr}

    def to_json(self) -> str:
        """Return the plan as indented JSON; `from_json` reads it."""
        return json.dumps(to_data(self), indent=2)

    @classmethod
    def from_json(cls, text: str, source: str = "the plan") -> Plan:
        """Return the plan in `text`; raises `InvalidArguments`, with `source`."""
        try:
            plan = from_data(cls, json.loads(text), "plan")
            for contradiction in _contradictions(plan):
                raise InvalidData(f"plan.{contradiction}")
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(
                f"cannot read {source}: {str(error) or type(error).__name__}; expected a plan of version "
                f"{VERSION}, as `accel launch --dry_run --json` prints it",
                do="make the plan again with this accel-launch",
            ) from error
        return plan


def _contradictions(plan: Plan) -> Iterator[str]:
    """Yield where the plan's parts contradict each other, as `<path>: <found>, not <expected>`."""
    if plan.version != VERSION:
        yield f"version: {plan.version}, not {VERSION}"
    if not plan.program.command:
        yield "program.command: empty, not a command"
    if not 0 <= plan.master_port <= 65535:
        yield f"master_port: {plan.master_port}, not a port"
    if not is_address(plan.master_addr):
        yield f"master_addr: {plan.master_addr!r}, not the name or address of a host"
    if plan.binding is not None and plan.binding.reserve_cores < 0:
        yield f"binding.reserve_cores: {plan.binding.reserve_cores}, not a number of cores"
    for position, host in enumerate(plan.hosts):
        if host.node_rank != position or not host.ranks:
            yield f"hosts[{position}]: node rank {host.node_rank}, {len(host.ranks)} ranks"
        if not is_host_name(host.name):
            yield f"hosts[{position}].name: {host.name!r}, not the name of a host"
        if [rank.local_rank for rank in host.ranks] != list(range(len(host.ranks))):
            yield f"hosts[{position}]: local ranks that are not 0, 1, 2, …"
    if not plan.hosts or [rank.rank for _, rank in plan.ranks()] != list(range(plan.world_size)):
        yield "hosts: global ranks that are not 0, 1, 2, …"
    if len({address(host.name).casefold() for host in plan.hosts}) < len(plan.hosts):
        yield "hosts: a machine twice"
    for variables in (plan.exports, *(rank.environment for _, rank in plan.ranks())):
        if wrong := [name for name in variables if not is_variable_name(name)]:
            yield f"hosts: an environment with {wrong[0]!r}, not the name of a variable"
    owners: dict[tuple[str, int], int] = {}
    for host, rank in plan.ranks():
        for cpu in rank.cpus:
            if (first := owners.setdefault((host.name, cpu), rank.rank)) != rank.rank:
                yield f"hosts: ranks {first} and {rank.rank} both have CPU {cpu} of {host.name}"
        if rank.slot < 0:
            yield f"hosts: rank {rank.rank}: slot {rank.slot}, not a slot of a host"
