# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hosts and slots of a job: `--include`, `--exclude`, `--num_nodes`, `--num_accelerators`. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from accel_core.launch.errors import InvalidSelection

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
