# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report on the terminal, the sentences and rows that the page shows, too, and how two rehearsals differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from accel_core.reports import one_line
from accel_rehearse.record import KINDS, PHASES, Collective, DryRank, Phase, Rehearsal

_MOST = 12
#: Of memory that is less than this share of the peak, nobody asks what it is.
_NEGLIGIBLE = 0.001


def size(count: float) -> str:
    """Return bytes with the unit that suits: `12.30 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def verdict(rehearsal: Rehearsal) -> str:
    """Return the verdict in one sentence."""
    rank = rehearsal.fullest
    if rehearsal.verdict == "fits":
        trained = any(rank.timeline for rank in rehearsal.ranks_rehearsed)
        return f"fits with {size(rehearsal.spare)} to spare{'' if trained else ', but no step was taken'}"
    if rehearsal.verdict == "stopped":
        return "stopped before the end: what follows is what was seen until then"
    if rehearsal.verdict == "failed":
        failed = next((r for r in rehearsal.ranks_rehearsed if r.outcome == "failed"), rank)
        return f"the program failed: {_failure(failed)}" if failed else "the program failed: no rank began"
    assert rank is not None
    if rank.outcome != "out of memory":
        used = f"{size(rank.reserved)} reserved of {size(rehearsal.memory)}"
        return f"does not fit: {used} on {title(rank)}"
    return f"does not fit: {_failure(rank)}"


def _failure(rank: DryRank) -> str:
    failure = rank.failure
    if failure is None:
        return f"{title(rank)} ended without saying why"
    asked = f" asked for {size(failure.asked)}" if failure.asked else ""
    where = (f"module {failure.module}" if failure.module else "", failure.source)
    place = ", ".join(word for word in (f" in {failure.phase or 'the program'}", *where) if word)
    said = "" if failure.asked else f": {next(iter(failure.message.strip().splitlines()), '')}"
    return f"{title(rank)}{asked}{place}{said}"


def title(rank: DryRank) -> str:
    """Return the name of a rank: `rank 63 (last)`."""
    return f"rank {rank.rank} ({rank.role})" if rank.role else f"rank {rank.rank}"


def facts(rehearsal: Rehearsal) -> dict[str, str]:
    """Return what was rehearsed, and on what."""
    profile = rehearsal.profile
    found = {
        "program": " ".join(rehearsal.program),
        "device": f"{profile.name}, {size(profile.capacity)}, of which {size(rehearsal.reserve)} are set aside",
        "ranks": f"{rehearsal.ranks}, {rehearsal.per_node} a node; {rehearsal.steps} steps",
        "took": f"{rehearsal.seconds:.0f} s and {size(rehearsal.committed)} of this machine's memory",
        "capacity from": profile.source,
    }
    return {name: value for name, value in found.items() if value}


def ranks(rehearsal: Rehearsal) -> list[dict[str, str]]:
    """Return a row for each rehearsed rank."""
    return [
        {
            "rank": title(rank), "outcome": rank.outcome, "requested": size(rank.requested),
            "allocated": size(rank.allocated), "reserved": size(rank.reserved),
            "peak in": rank.peak.name if rank.peak else "",
        }
        for rank in rehearsal.ranks_rehearsed
    ]  # fmt: skip


def peaks(rank: DryRank) -> list[dict[str, str]]:
    """Return a row for each phase, in the order of a step."""
    return [
        {
            "phase": phase.name,
            "requested": size(phase.requested),
            "allocated": size(phase.allocated),
            "reserved": size(phase.reserved),
            "at": ", ".join(word for word in (phase.source, phase.module) if word),
            "by kind": ", ".join(f"{kind} {size(count)}" for kind, count in _kinds(phase)),
        }
        for phase in sorted(rank.phases, key=lambda phase: _place(PHASES, phase.name))
    ]


def _kinds(phase: Phase) -> list[tuple[str, int]]:
    least = phase.requested * _NEGLIGIBLE
    kinds = [(kind, count) for kind, count in phase.by_kind.items() if count > least]
    return sorted(kinds, key=lambda item: (-item[1], _place(KINDS, item[0])))


def _place(known: tuple[str, ...], name: str) -> int:
    return known.index(name) if name in known else len(known)


def largest(rank: DryRank) -> list[dict[str, str]]:
    """Return a row for each place that holds much at the peak."""
    least = rank.requested * _NEGLIGIBLE
    places = sorted((p for p in rank.largest if p.bytes > least), key=lambda p: -p.bytes)[:_MOST]
    return [
        {
            "bytes": size(place.bytes), "tensors": str(place.count), "kind": place.kind, "line": place.source,
            "module": place.module,
        }
        for place in places
    ]  # fmt: skip


def host(rehearsal: Rehearsal) -> list[dict[str, str]]:
    """Return the host memory per rank and per node, of the rank that needs most and of a node of such ranks."""
    most = _largest_host(rehearsal)
    if most is None:
        return []
    ranks = min(rehearsal.ranks, rehearsal.per_node)
    return [
        {
            "of": name, "all": size(times * (most.host.pageable + most.host.pinned)),
            "pageable": size(times * most.host.pageable), "pinned": size(times * most.host.pinned),
        }
        for name, times in ((title(most), 1), (f"a node of {ranks} such ranks", ranks))
    ]  # fmt: skip


def host_of_node(rehearsal: Rehearsal) -> int:
    """Return the bytes of host memory that a node needs, if all of its ranks need what the largest does."""
    most = _largest_host(rehearsal)
    ranks = min(rehearsal.ranks, rehearsal.per_node)
    return 0 if most is None else ranks * (most.host.pageable + most.host.pinned)


def _largest_host(rehearsal: Rehearsal) -> DryRank | None:
    ranks = rehearsal.ranks_rehearsed
    return max(ranks, key=lambda rank: rank.host.pageable + rank.host.pinned, default=None)


def collectives(rank: DryRank) -> list[dict[str, str]]:
    """Return a row for each kind of collective call of a step, the largest first within a phase."""

    def order(call: Collective) -> tuple[int, float]:
        return _place(PHASES, call.phase), -call.bytes

    return [
        {
            "phase": call.phase, "operation": call.operation, "group": f"{call.group} ({call.size})".strip(),
            "dtype": call.dtype, "calls a step": f"{call.calls:g}", "bytes a step": size(call.bytes),
        }
        for call in sorted(rank.collectives, key=order)
    ]  # fmt: skip


def layers_of_memory(rank: DryRank) -> str:
    """Return what the allocator adds to what the program requested."""
    return (
        f"requested {size(rank.requested)}, allocated {size(rank.allocated)}"
        f" (+{size(rank.allocated - rank.requested)} by rounding), reserved {size(rank.reserved)}"
        f" (+{size(rank.reserved - rank.allocated)} unused or fragmented)"
    )


def remarks(rehearsal: Rehearsal) -> dict[str, list[str]]:
    """Return what was assumed, what is not promised, and what is particular about this run."""
    particular = [f"{title(rank)}: {note}" for rank in rehearsal.ranks_rehearsed for note in rank.notes]
    for rank in rehearsal.ranks_rehearsed:
        if rank.computed:
            particular.append(
                f"{title(rank)} computed what has no shape function: {', '.join(rank.computed)}"
            )
        if rank.unanswered:
            particular.append(f"{title(rank)} received {rank.unanswered} messages whose content is not known")
    found = {
        "assumed": list(rehearsal.assumed),
        "not promised": list(rehearsal.not_promised),
        "notes": particular,
    }
    return {name: sentences for name, sentences in found.items() if sentences}


def terminal(rehearsal: Rehearsal) -> str:
    """Return the report as lines for a terminal: the verdict first."""
    return "\n".join(one_line(line).rstrip() for line in _lines(rehearsal)) + "\n"


def _lines(rehearsal: Rehearsal) -> Iterator[str]:
    yield verdict(rehearsal)
    yield ""
    yield from (f"{name + ':':14} {value}" for name, value in facts(rehearsal).items())
    yield from _table("ranks", ranks(rehearsal))
    rank = rehearsal.fullest
    if rank is not None:
        yield from ("", f"{title(rank)}: {layers_of_memory(rank)}")
        yield from _table("peak by phase", peaks(rank))
        yield from _table("largest at the peak", largest(rank))
        yield from _table("host memory", host(rehearsal))
        yield from _table("collectives", collectives(rank))
    for name, sentences in remarks(rehearsal).items():
        yield from ("", f"{name}:")
        yield from (f"  - {sentence}" for sentence in sentences)


def _table(heading: str, rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    lines = list(aligned(rows))
    yield from ("", f"{heading}:", *lines) if lines else ()


def aligned(rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield the rows of a table for a terminal, below the names of its columns."""
    rows = [{name: one_line(value) for name, value in row.items()} for row in rows]
    if not rows:
        return
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    for row in ({name: name for name in widths}, *rows):
        yield "  " + "  ".join(f"{row[name]:{width}}" for name, width in widths.items()).rstrip()


# ----------------------------------------------------------------------------------------- comparison
def differences(old: Rehearsal, new: Rehearsal) -> str:
    """Return the lines that say what differs, for a terminal; ranks are compared by their numbers."""
    return "\n".join(one_line(line) for line in _changes(old, new)) + "\n"


def _changes(old: Rehearsal, new: Rehearsal) -> Iterator[str]:
    yield f"before: {verdict(old)}"
    yield f"now:    {verdict(new)}"
    before, now = ({k: v for k, v in facts(r).items() if k != "took"} for r in (old, new))
    yield from (
        f"{name}: {before.get(name, '-')} -> {now.get(name, '-')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )
    former = {rank.rank: rank for rank in old.ranks_rehearsed}
    for rank in new.ranks_rehearsed:
        then = former.pop(rank.rank, None)
        if then is None:
            yield f"{title(rank)}: rehearsed now"
        else:
            yield from (f"{title(rank)}, {line}" for line in _changes_of(then, rank))
    yield from (f"{title(rank)}: not rehearsed now" for rank in former.values())


def _changes_of(then: DryRank, rank: DryRank) -> Iterator[str]:
    before, now = _numbers(then), _numbers(rank)
    for name in {**before, **now}:
        past, value = before.get(name, 0.0), now.get(name, 0.0)
        if past != value:
            sign = "+" if value > past else "-"
            yield f"{name}: {size(past)} -> {size(value)} ({sign}{size(abs(value - past))})"


def _numbers(rank: DryRank) -> dict[str, float]:
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
