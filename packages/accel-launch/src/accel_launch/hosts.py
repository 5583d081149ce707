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
_SPEC = re.compile(r"(?P<host>[^:\[\]]+|[^\[]*\[.*\])(?::(?P<slots>[0-9]{1,9}(,[0-9]{1,9})*))?")


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
        elif (machine := machine_name(host)) in lines:
            complaint = f"{host} is on line {lines[machine]} already"
        else:
            hosts[host], lines[machine] = int(match["slots"]), number
            continue
        complaint = f"{source}:{number}: {line.strip()[:200]!r}\n{complaint}"
        break
    if complaint or not hosts:
        raise InvalidHostfile(
            what="cannot use the hostfile",
            found=complaint or f"{source}: no line with a host",
            expected="a line `worker-0 slots=4` for each host, each host once; comments begin with #",
            do="correct the line",
        )
    return hosts


Slots = dict[str, tuple[int, ...]]


def select(
    pool: Mapping[str, int], *, include: str = "", exclude: str = "", num_nodes: int = -1, num_slots: int = -1
) -> Slots:
    """Return the selected slots by host, in the pool's order; raises `InvalidSelection`.

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
    """Return the named slots by host; raises `InvalidSelection`."""
    named: dict[str, set[int]] = {}
    for spec in _specs(text, slots):
        match = _SPEC.fullmatch(spec)
        found = ""
        if not match:
            found = f"{spec[:80]!r} is not HOST or HOST:SLOT,SLOT"
        elif (host := match["host"]) not in slots:
            found = f"no host {host[:80]!r}"
        else:
            own = set(slots[host]) if match["slots"] is None else set(map(int, match["slots"].split(",")))
            if wrong := sorted(own.difference(slots[host])):
                found = f"no slot {wrong[0]} on {host}, which has {len(slots[host])}"
            named.setdefault(host, set()).update(own)
        if found:
            there = ", ".join(list(slots)[:8]) + (f" and {len(slots) - 8} more" if len(slots) > 8 else "")
            raise _refused(
                f" by {option} {text[:200]!r}",
                found,
                f"HOST or HOST:SLOT,SLOT, several joined by @, of the hosts {there}; slots count from 0",
                f"correct {option}, or add the host to the hostfile",
            )
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


def _first(slots: Slots, num_nodes: int, num_slots: int) -> Slots:
    """Return the first hosts, and of each the first slots."""
    first = slots if num_nodes == -1 else dict(list(slots.items())[: max(num_nodes, 1)])
    for option, number, most, things in (
        ("--num_nodes", num_nodes, len(slots), "hosts in the hostfile"),
        ("--num_accelerators", num_slots, min(map(len, first.values())), "slots on each of these hosts"),
    ):
        if number != -1 and not 0 < number <= most:
            raise _refused(
                f" by {option} {number}",
                f"{most} {things}",
                f"1 to {most}",
                f"correct {option}, or the hostfile",
            )
    return {host: own[: num_slots if num_slots != -1 else None] for host, own in first.items()}


def _refused(option: str, found: str, expected: str, do: str) -> InvalidSelection:
    return InvalidSelection(
        what=f"cannot select hosts and slots{option}", found=found, expected=expected, do=do
    )
