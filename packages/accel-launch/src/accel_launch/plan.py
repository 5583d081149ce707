# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a job as data: which rank runs where, on which cores, with which environment.

Every engine carries out the same plan, so that a script sees the same variables under each of them. A plan says what
runs; how it is started (the engine, ssh, logs) is not part of it. As JSON it is checked field by field: it may
have been edited. A field with the metadata `AS_LIST` holds ascending numbers of CPUs or NUMA nodes, and is written as
the kernel writes them, `0-3,8`: a machine has hundreds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from accel_core.errors import AccelError
from accel_core.vendor import format_cpu_list, parse_cpu_list
from accel_launch.errors import InvalidPlan

#: The only host of a plan that was made without a hostfile.
LOCAL = "localhost"
#: Names that may stand in a command line for another host have no character that a shell or ssh interprets:
#: user@host, host, address; an IPv6 address in brackets. No leading hyphen, which ssh would take for an option.
HOST = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])"
_HOST = re.compile(HOST)
_SECRET = re.compile(
    r"(^|_)(\w*KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|AUTH)(_|$)", re.IGNORECASE
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_host_name(text: str) -> bool:
    """Whether the text is the name or address of a host, with or without a user."""
    return len(text) <= 320 and _HOST.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether the text is the name or address of a host; an IPv6 address may be without brackets."""
    return "@" not in text and (is_host_name(text) or is_host_name(f"[{text}]"))


def is_variable_name(text: str) -> bool:
    """Whether every shell takes the text as the name of an environment variable."""
    return _VARIABLE.fullmatch(text) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret: by its name, or by a password in a URL."""
    return _SECRET.search(name) is not None or _URL_WITH_PASSWORD.search(value) is not None


def address(host: str) -> str:
    """Return the host's address for a connection: without user, and without the brackets of IPv6."""
    return host.rpartition("@")[2].strip("[]")


def machine_name(host: str) -> str:
    """Return the host of `user@host` as it is compared: a machine has one entry, whoever logs in."""
    return host.rpartition("@")[2].casefold()


AS_LIST: Mapping[str, bool] = {"as_list": True}

T = TypeVar("T")


class InvalidData(ValueError):
    """The data has another shape than the class; the text is `<path>: <found>, not <expected>`."""


def to_data(value: Any) -> Any:
    """Return dicts, lists and plain values for a dataclass."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: format_cpu_list(getattr(value, field.name))
            if field.metadata.get("as_list")
            else to_data(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def from_data(cls: type[T], data: object, path: str) -> T:
    """Return the dataclass for the data that `to_data` returned; raises `InvalidData`, with the path of the value."""
    if not isinstance(data, dict):
        raise InvalidData(f"{path}: {_shown(data)}, not an object")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if wrong := sorted(map(str, set(data) ^ set(fields))):
        raise InvalidData(
            f"{path}: the keys {', '.join(wrong)} are unknown or missing, not {', '.join(fields)}"
        )
    return cls(
        **{
            name: _numbers(data[name], f"{path}.{name}")
            if field.metadata.get("as_list")
            else _value(hints[name], data[name], f"{path}.{name}")
            for name, field in fields.items()
        }
    )


def _value(hint: Any, data: object, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_data(hint, data, path)  # type: ignore[arg-type]
    if origin is types.UnionType:
        return None if data is None else _value(arguments[0], data, path)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(data))
    if origin is Mapping and isinstance(data, dict):
        return {_value(str, key, path): _value(str, item, f"{path}.{key}") for key, item in data.items()}
    if origin is Literal and data in arguments:
        return data
    # bool is an int in Python, not in JSON.
    if isinstance(hint, type) and type(data) is hint and _is_portable(data):
        return data
    raise InvalidData(f"{path}: {_shown(data)}, not {_described(hint)}")


def _is_portable(data: object) -> bool:
    """Return whether a string can be an argument, or the value of a variable, of a process."""
    try:
        return b"\0" not in os.fsencode(str(data))
    except UnicodeEncodeError:
        return False


def _numbers(data: object, path: str) -> tuple[int, ...]:
    if not isinstance(data, str):
        raise InvalidData(f"{path}: {_shown(data)}, not a list such as '0-3,8'")
    try:
        return tuple(sorted(parse_cpu_list(data, path)))
    except AccelError as error:
        raise InvalidData(f"{path}: {_shown(data)}, not a list such as '0-3,8'") from error


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return {str: "a string without NUL", int: "a whole number", bool: "true or false"}.get(hint, str(hint))


def _shown(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:60]}…"


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
    `planning.complete`. unused: allowed CPUs that no rank received. reserved: those of
    `--reserve_cores`.
    """

    name: str
    node_rank: int
    ranks: tuple[Rank, ...]
    bound_here: bool = False
    unused: tuple[int, ...] = field(default=(), metadata=AS_LIST)
    reserved: tuple[int, ...] = field(default=(), metadata=AS_LIST)

    def with_variables(self, variables: Mapping[str, str]) -> Host:
        """Return the host with these variables in the environment of each rank."""
        ranks = (replace(rank, environment={**rank.environment, **variables}) for rank in self.ranks)
        return replace(self, ranks=tuple(ranks))


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
        hosts = tuple(host.with_variables(variables) for host in self.hosts)
        return replace(self, master_addr=address, master_port=port, hosts=hosts)

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
                do="make the plan again with this accel-launch",
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
