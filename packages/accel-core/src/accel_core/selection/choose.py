# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The choice: a pure function from candidates and a request to a decision.

It reads no environment, imports nothing and accesses no device. If the decision depends on a runtime, the candidate of
the decision is pending: the caller confirms it, replaces it and calls again. So only the runtimes that matter are
imported, and a test can cover the whole truth table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accel_core.devices import CPU_KEY
from accel_core.errors import AccelError
from accel_core.selection import messages
from accel_core.selection.candidates import Candidate, State


@dataclass(frozen=True)
class Request:
    """Settings of a selection.

    asked:    DS_ACCELERATOR, None when unset.
    strict:   a CPU fall-back or a broken vendor is an error.
    skip:     keys that detection skips.
    claimed:  backend that holds torch's PrivateUse1 slot; empty while it is free.
    upstream: keys for which the installed DeepSpeed has a backend; None without DeepSpeed.
    """

    asked: str | None = None
    strict: bool = False
    skip: tuple[str, ...] = ()
    claimed: str = ""
    upstream: frozenset[str] | None = None


@dataclass(frozen=True)
class Decision:
    """The candidate to confirm, chosen or left to DeepSpeed, by its state, and the current state of all.

    candidate: None if the selection failed with `error`.
    """

    candidate: Candidate | None
    candidates: tuple[Candidate, ...]
    warnings: tuple[str, ...] = ()
    error: AccelError | None = None


def choose(candidates: Iterable[Candidate], request: Request) -> Decision:
    """Return the decision; see the docstring of this module.

    The rules are in docs/selection.md. Candidates may be in any order.
    """
    # At equal priority, candidates that yield come first, so that they are outranked before a tie is found.
    ordered = sorted(candidates, key=lambda candidate: (-candidate.priority, not candidate.yields_to))
    if request.asked is not None:
        return _requested(ordered, request, request.asked)
    ordered = [passed_over(candidate, request) for candidate in ordered]
    return _detected(ordered, request)


def passed_over(candidate: Candidate, request: Request) -> Candidate:
    """Return the candidate, blocked if ACCEL_SKIP names its key."""
    if candidate.key in request.skip and candidate.state is not State.NOT_INSTALLED:
        return candidate.now(State.BLOCKED, f"passed over: ACCEL_SKIP names {candidate.key}")
    return candidate


def _detected(candidates: list[Candidate], request: Request) -> Decision:
    for place, candidate in enumerate(candidates):
        if candidate.state is State.PENDING and _blocker(candidate, request):
            candidates[place] = candidate.now(State.BLOCKED, messages.blocked(request.claimed))
            continue
        if candidate.state not in (State.PENDING, State.PRESENT):
            continue
        # Devices in this machine that could not be used after the import of a runtime that shows none of its own.
        rivals = [o for o in candidates if o.key == candidate.takes and o.hardware and not candidate.hardware]
        if candidate.state is State.PENDING and any(rival.state is State.PRESENT for rival in rivals):
            candidates[place] = candidate.now(State.OUTRANKED, f"its runtime would replace {candidate.takes}")
            continue
        preferred = [other for other in candidates if other.key in candidate.yields_to]
        if any(other.state is State.PRESENT for other in preferred):
            candidates[place] = candidate.now(State.OUTRANKED, f"yields to {', '.join(candidate.yields_to)}")
            continue
        for one in (*rivals, candidate, *preferred):
            if one.state is State.PENDING and not _blocker(one, request):
                return Decision(_before(one, candidates, request), tuple(candidates))
        return _won(candidates, candidate, request)
    return _failed(candidates, messages.nothing_at_all(candidates))


def _before(candidate: Candidate, candidates: list[Candidate], request: Request) -> Candidate:
    """Return the candidate to confirm first: where two need the free PrivateUse1 slot, one whose device was found.

    A runtime that takes the slot and counts no device would block the other one.
    """
    if candidate.privateuse1 and not candidate.hardware and not request.claimed:
        for other in candidates:
            rival = other.privateuse1 not in ("", candidate.privateuse1)
            if rival and other.hardware and other.state is State.PENDING:
                return other
    return candidate


def _failed(candidates: Sequence[Candidate], error: AccelError) -> Decision:
    return Decision(None, tuple(candidates), error=error)


def _blocker(candidate: Candidate, request: Request) -> bool:
    return bool(candidate.privateuse1 and request.claimed and request.claimed != candidate.privateuse1)


def _won(candidates: list[Candidate], winner: Candidate, request: Request) -> Decision:
    rivals = [f for f in candidates if f.priority == winner.priority and f is not winner]
    for rival in rivals:
        if rival.state is State.PENDING and not _blocker(rival, request):
            return Decision(_before(rival, candidates, request), tuple(candidates))
    tied = [winner, *(rival for rival in rivals if rival.state is State.PRESENT)]
    if len(tied) > 1:
        return _failed(candidates, messages.ambiguous(tied))
    fallback = winner.key == CPU_KEY
    broken = [candidate for candidate in candidates if candidate.state is State.BROKEN]
    if request.strict and (fallback or broken):
        return _failed(candidates, messages.strict(candidates, winner, fallback))
    lost = [candidate for candidate in candidates if fallback and _lost(candidate, candidates, request)]
    if lost:
        return _failed(candidates, messages.device_lost(lost))
    unknown_keys = [key for key in request.skip if key not in {candidate.key for candidate in candidates}]
    warnings = [messages.skips_nothing(unknown_keys)] if unknown_keys else []
    if fallback:
        broken = [candidate for candidate in broken if candidate.key == winner.key]
        warnings.append(messages.cpu_fallback(candidates))
    return _take(candidates, winner, request, (*warnings, *_passed_over(broken, winner)))


def _lost(candidate: Candidate, candidates: list[Candidate], request: Request) -> bool:
    """Return whether the device of this candidate is there and nothing can use it.

    It is not lost if another package's runtime works and counts no device, which the user may have hidden.
    """
    unusable = candidate.state is State.BROKEN or (
        candidate.state is State.BLOCKED
        and _blocker(candidate, request)
        and candidate.key not in request.skip
    )
    if not (unusable and candidate.hardware) or candidate.key == CPU_KEY:
        return False
    return not any(f.state is State.ABSENT and f.runtime for f in candidates if f.key == candidate.key)


def _passed_over(broken: Iterable[Candidate], winner: Candidate) -> tuple[str, ...]:
    """Return a warning for each broken package; it says so if DeepSpeed's own backend takes its place."""
    return tuple(
        messages.left_to_deepspeed(candidate)
        if winner.replaces and candidate.key == winner.key and not candidate.upstream
        else messages.broken(candidate)
        for candidate in broken
        if not candidate.replaces
    )


def _take(
    candidates: Sequence[Candidate], winner: Candidate, request: Request, warnings: tuple[str, ...]
) -> Decision:
    if winner.upstream and winner.key not in (request.upstream or ()):
        return _failed(candidates, messages.unserved(winner, request.upstream))
    state = State.DEFERRED if winner.upstream else State.CHOSEN
    taken = winner.now(state)
    final = tuple(taken if f is winner else _outranked(f) for f in candidates)
    return Decision(taken, final, warnings)


def _outranked(candidate: Candidate) -> Candidate:
    return candidate.now(State.OUTRANKED) if candidate.state in (State.PENDING, State.PRESENT) else candidate


def _requested(candidates: list[Candidate], request: Request, key: str) -> Decision:
    named = [candidate for candidate in candidates if candidate.key == key]
    if not key or not (named or key in (request.upstream or ())):
        return _failed(candidates, messages.unknown(key, candidates, request.upstream))
    if not named:
        # A backend of the installed DeepSpeed that this version of core does not know.
        unlisted = Candidate(key, 0, State.PRESENT, "DeepSpeed's own backend, asked for", upstream=True)
        return _take([*candidates, unlisted], unlisted, request, ())
    broken = [candidate for candidate in named if candidate.state is State.BROKEN]
    for place, candidate in enumerate(named):
        warnings = _passed_over(broken, candidate)
        if candidate.state is State.PENDING:
            if not _blocker(candidate, request):
                return Decision(candidate, tuple(candidates))
            named[place] = candidate.now(State.BLOCKED, messages.blocked(request.claimed))
            candidates[candidates.index(candidate)] = named[place]
        elif candidate.state is State.PRESENT:
            return _take(candidates, candidate, request, warnings)
    for candidate in named:
        if candidate.state is State.ABSENT and candidate.runtime and not candidate.replaces:
            warnings = _passed_over(broken, candidate)
            return _take(candidates, candidate, request, (*warnings, messages.no_device(candidate)))
    return _failed(candidates, messages.unavailable(key, named, request.upstream))
