# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How two rehearsals differ."""

from __future__ import annotations

from collections.abc import Iterator

from accel_core.reports import one_line
from accel_sim.rehearse import report
from accel_sim.rehearse.record import Rank, Rehearsal


def differences(old: Rehearsal, new: Rehearsal) -> str:
    """Return the lines that say what differs, for a terminal; ranks are compared by their numbers."""
    return "\n".join(one_line(line) for line in _lines(old, new)) + "\n"


def _lines(old: Rehearsal, new: Rehearsal) -> Iterator[str]:
    yield f"before: {report.verdict(old)}"
    yield f"now:    {report.verdict(new)}"
    before, now = ({k: v for k, v in report.facts(r).items() if k != "took"} for r in (old, new))
    yield from (
        f"{name}: {before.get(name, '-')} -> {now.get(name, '-')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )
    former = {rank.rank: rank for rank in old.ranks_rehearsed}
    for rank in new.ranks_rehearsed:
        then = former.pop(rank.rank, None)
        if then is None:
            yield f"{report.title(rank)}: rehearsed now"
        else:
            yield from (f"{report.title(rank)}, {line}" for line in _rank(then, rank))
    yield from (f"{report.title(rank)}: not rehearsed now" for rank in former.values())


def _rank(then: Rank, rank: Rank) -> Iterator[str]:
    before, now = _numbers(then), _numbers(rank)
    for name in {**before, **now}:
        past, value = before.get(name, 0.0), now.get(name, 0.0)
        if past != value:
            sign = "+" if value > past else "-"
            yield f"{name}: {report.size(past)} -> {report.size(value)} ({sign}{report.size(abs(value - past))})"


def _numbers(rank: Rank) -> dict[str, float]:
    found: dict[str, float] = {
        "requested": rank.requested,
        "allocated": rank.allocated,
        "reserved": rank.reserved,
    }
    for phase in rank.phases:
        found[f"peak of {phase.name}"] = phase.requested
        found |= {f"{kind} at the peak of {phase.name}": count for kind, count in phase.by_kind.items()}
    found |= {"host, pageable": rank.host.pageable, "host, pinned": rank.host.pinned}
    for call in rank.collectives:
        name = f"{call.operation} of {call.size} in {call.phase}, {call.dtype}, a step"
        found[name] = found.get(name, 0) + call.bytes
    return found
