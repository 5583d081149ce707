# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hosts and slots of a job: the hostfile, and what `--include`, `--exclude` and the numbers of options select."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from accel_launch.errors import InvalidHostfile, InvalidSelection
from accel_launch.plan import is_host_name, machine_name

#: DeepSpeed's default; used if it exists and no other is named.
DEFAULT_HOSTFILE = "/job/hostfile"
#: More is a typing error, and would fill the memory.
MOST_SLOTS = 4096
_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>[0-9]{1,9})")


def read_hostfile(named: str | None) -> dict[str, int] | None:
    """Return the number of slots by host, in the file's order; None without a hostfile.

    named: None if no `--hostfile` was given; then the default one is used, if it exists. Raises `InvalidHostfile`.
    """
    if named is None and not Path(DEFAULT_HOSTFILE).is_file():
        return None
    path = named if named is not None else DEFAULT_HOSTFILE
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidHostfile(
            what=f"cannot read the hostfile {path!r}",
            found=getattr(error, "strerror", None) or str(error),
            expected="a text file with a line `worker-0 slots=4` for each host",
            do="correct --hostfile, or leave it out to use this machine alone",
        ) from error
    return parse_hostfile(text, path)


def parse_hostfile(text: str, source: str = "hostfile") -> dict[str, int]:
    """Return the number of slots by host; raises `InvalidHostfile` with `source`, number and text of the line."""
    hosts: dict[str, int] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        content = re.sub(r"(^|\s)#.*", "", line).strip()
        if not content:
            continue
        at = f"{source}:{number}: {line.strip()[:200]!r}"
        match = _LINE.fullmatch(content)
        if not match or not is_host_name(match["host"]):
            raise _invalid(at, _complaint(content))
        host, slots = match["host"], int(match["slots"])
        if not 0 < slots <= MOST_SLOTS:
            raise _invalid(at, f"{slots} slots; a host has 1 to {MOST_SLOTS}")
        if (machine := machine_name(host)) in lines:
            raise _invalid(at, f"{host} is on line {lines[machine]} already")
        hosts[host], lines[machine] = slots, number
    if not hosts:
        raise _invalid(f"{source}: no line with a host", "")
    return hosts


def _complaint(content: str) -> str:
    host, _, rest = " ".join(content.split()).partition(" ")
    if not is_host_name(host):
        return f"{host[:80]!r} is not the name of a host"
    if not rest.startswith("slots="):
        return "`slots=` does not follow the host"
    number, _, trailing = rest.removeprefix("slots=").partition(" ")
    if not number.isascii() or not number.isdecimal():
        return "the slots are not a whole number"
    return f"text follows the slots: {trailing[:80]!r}" if trailing else "the number of slots is too large"


def _invalid(at: str, complaint: str) -> InvalidHostfile:
    return InvalidHostfile(
        what="cannot use the hostfile",
        found=f"{at}\n{complaint}".rstrip(),
        expected="a line `worker-0 slots=4` for each host, each host once; comments begin with #",
        do="correct the line",
    )


Slots = dict[str, tuple[int, ...]]


def select(
    pool: Mapping[str, int],
    *,
    include: str = "",
    exclude: str = "",
    num_nodes: int = -1,
    num_slots: int = -1,
) -> Slots:
    """Return the selected slots by host, in the pool's order; raises `InvalidSelection`.

    pool: number of slots by host. -1: not given.
    """
    given = {"--include": include, "--exclude": exclude}
    filters = [option for option, text in given.items() if text]
    numbers = {"--num_nodes": num_nodes, "--num_accelerators": num_slots}
    counts = [option for option, number in numbers.items() if number != -1]
    if len(filters) > 1 or (filters and counts):
        raise InvalidSelection(
            what="cannot select hosts and slots",
            found=" and ".join(filters + counts),
            expected="one of --include, --exclude, or numbers",
            do="leave out all but one",
        )
    slots = {host: tuple(range(number)) for host, number in pool.items()}
    if filters:
        named = _parse(given[filters[0]], filters[0], slots)
        return _included(slots, named) if include else _excluded(slots, named)
    return _first(slots, numbers)


def _included(slots: Slots, named: dict[str, set[int] | None]) -> Slots:
    chosen = {host: named[host] for host in slots if host in named}
    return {host: slots[host] if own is None else tuple(sorted(own)) for host, own in chosen.items()}


def _excluded(slots: Slots, named: dict[str, set[int] | None]) -> Slots:
    kept = {
        host: tuple(slot for slot in own if host not in named or slot not in (named[host] or own))
        for host, own in slots.items()
    }
    if left := {host: own for host, own in kept.items() if own}:
        return left
    raise InvalidSelection(
        what="cannot select hosts and slots",
        found="--exclude names all of them",
        expected="at least one slot that is left",
        do="exclude less",
    )


def _parse(text: str, option: str, slots: Slots) -> dict[str, set[int] | None]:
    """Return the named slots by host, None for all; raises `InvalidSelection`."""
    named: dict[str, set[int] | None] = {}
    for spec in _specs(text, slots):
        match = re.fullmatch(
            r"(?P<host>[^:\[\]]+|[^\[]*\[.*\])(?::(?P<slots>[0-9]{1,9}(,[0-9]{1,9})*))?", spec
        )
        if not match:
            raise _unknown(option, text, f"{spec[:80]!r} is not HOST or HOST:SLOT,SLOT", slots)
        host = match["host"]
        if host not in slots:
            raise _unknown(option, text, f"no host {host[:80]!r}", slots)
        if match["slots"] is None:
            named[host] = None
            continue
        numbers = [int(number) for number in match["slots"].split(",")]
        if wrong := sorted(set(numbers) - set(slots[host])):
            raise _unknown(option, text, f"no slot {wrong[0]} on {host}, which has {len(slots[host])}", slots)
        if (former := named.setdefault(host, set())) is not None:
            former.update(numbers)
    return named


def _specs(text: str, slots: Slots) -> list[str]:
    """Split at `@`, but not within `user@host` if the pool has a host of that name."""
    specs: list[str] = []
    for part in text.split("@"):
        joined = f"{specs[-1]}@{part}" if specs else ""
        if joined and re.sub(r":[0-9,]*$", "", joined) in slots:
            specs[-1] = joined
        else:
            specs.append(part)
    return specs


def _unknown(option: str, text: str, found: str, slots: Slots) -> InvalidSelection:
    names = list(slots)
    there = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return InvalidSelection(
        what=f"cannot select hosts and slots by {option} {text[:200]!r}",
        found=found,
        expected=f"HOST or HOST:SLOT,SLOT, several joined by @, of the hosts {there}; slots count from 0",
        do=f"correct {option}, or add the host to the hostfile",
    )


def _first(slots: Slots, numbers: Mapping[str, int]) -> Slots:
    """Return the first hosts, and of each the first slots."""
    num_nodes, num_slots = numbers.values()
    if num_nodes != -1 and not 0 < num_nodes <= len(slots):
        raise _too_many("--num_nodes", num_nodes, len(slots), "hosts in the hostfile")
    first = dict(list(slots.items())[: num_nodes if num_nodes != -1 else None])
    most = min(map(len, first.values()))
    if num_slots != -1 and not 0 < num_slots <= most:
        raise _too_many("--num_accelerators", num_slots, most, "slots on each of these hosts")
    return {host: own[: num_slots if num_slots != -1 else None] for host, own in first.items()}


def _too_many(option: str, number: int, most: int, things: str) -> InvalidSelection:
    return InvalidSelection(
        what=f"cannot select hosts and slots by {option} {number}",
        found=f"{most} {things}",
        expected=f"1 to {most}",
        do=f"correct {option}, or the hostfile",
    )
