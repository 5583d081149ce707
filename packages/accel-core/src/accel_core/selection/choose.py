# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The choice: a pure function from findings and a request to the next step.

It reads no environment, imports nothing and accesses no device. If the decision depends on a runtime, the step is
CONFIRM: the caller confirms that candidate, replaces its finding and calls again. So only the runtimes that matter
are imported, and a test can cover the whole truth table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from accel_core.cascade import CPU_KEY
from accel_core.errors import AccelError
from accel_core.selection import messages
from accel_core.selection.finding import Finding, State


class Step(Enum):
    """The next step for the caller."""

    CONFIRM = "confirm"
    CONSTRUCT = "construct"
    DEFER = "defer"
    FAIL = "fail"


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
class Verdict:
    """The next step, its candidate, and the current state of every candidate."""

    step: Step
    finding: Finding | None
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...] = ()
    error: AccelError | None = None


def choose(findings: Iterable[Finding], request: Request) -> Verdict:
    """Return the next step; see the docstring of this module.

    The rules are in docs/selection.md. Findings may be in any order.
    """
    # At equal priority, candidates that yield come first, so that they are outranked before a tie is found.
    ordered = sorted(findings, key=lambda finding: (-finding.priority, not finding.yields_to))
    if request.asked is not None:
        return _requested(ordered, request, request.asked)
    ordered = [passed_over(finding, request) for finding in ordered]
    return _detected(ordered, request)


def passed_over(finding: Finding, request: Request) -> Finding:
    """Return the finding, blocked if ACCEL_SKIP names its key."""
    if finding.key in request.skip and finding.state is not State.NOT_INSTALLED:
        return finding.now(State.BLOCKED, f"passed over: ACCEL_SKIP names {finding.key}")
    return finding


# ---------------------------------------------------------------------------------------- detection


def _detected(findings: list[Finding], request: Request) -> Verdict:
    for place, finding in enumerate(findings):
        if finding.state is State.PENDING and _blocker(finding, request):
            findings[place] = finding.now(State.BLOCKED, messages.blocked(request.claimed))
            continue
        if finding.state not in (State.PENDING, State.PRESENT):
            continue
        preferred = [other for other in findings if other.key in finding.yields_to]
        if any(other.state is State.PRESENT for other in preferred):
            findings[place] = finding.now(State.OUTRANKED, f"yields to {', '.join(finding.yields_to)}")
            continue
        for candidate in (finding, *preferred):
            if candidate.state is State.PENDING and not _blocker(candidate, request):
                return Verdict(Step.CONFIRM, candidate, tuple(findings))
        return _won(findings, finding, request)
    error = messages.nothing_at_all(findings)
    return Verdict(Step.FAIL, None, tuple(findings), error=error)


def _blocker(finding: Finding, request: Request) -> bool:
    return bool(finding.privateuse1 and request.claimed and request.claimed != finding.privateuse1)


def _won(findings: list[Finding], winner: Finding, request: Request) -> Verdict:
    rivals = [f for f in findings if f.priority == winner.priority and f is not winner]
    for rival in rivals:
        if rival.state is State.PENDING and not _blocker(rival, request):
            return Verdict(Step.CONFIRM, rival, tuple(findings))
    tied = [winner, *(rival for rival in rivals if rival.state is State.PRESENT)]
    if len(tied) > 1:
        return Verdict(Step.FAIL, None, tuple(findings), error=messages.ambiguous(tied))
    fallback = winner.key == CPU_KEY
    broken = [finding for finding in findings if finding.state is State.BROKEN]
    if request.strict and (fallback or broken):
        return Verdict(Step.FAIL, None, tuple(findings), error=messages.strict(findings, winner, fallback))
    lost = [finding for finding in findings if fallback and _lost(finding, findings, request)]
    if lost:
        return Verdict(Step.FAIL, None, tuple(findings), error=messages.device_lost(lost))
    unknown_keys = [key for key in request.skip if key not in {finding.key for finding in findings}]
    warnings = [messages.skips_nothing(unknown_keys)] if unknown_keys else []
    if fallback:
        broken = [finding for finding in broken if finding.key == winner.key]
        warnings.append(messages.cpu_fallback(findings))
    return _take(findings, winner, request, (*warnings, *_passed_over(broken, winner)))


def _lost(finding: Finding, findings: list[Finding], request: Request) -> bool:
    """Whether the device of this candidate is there and nothing can use it.

    It is not lost if another package's runtime works and counts no device, which the user may have hidden.
    """
    unusable = finding.state is State.BROKEN or (
        finding.state is State.BLOCKED and _blocker(finding, request) and finding.key not in request.skip
    )
    if not (unusable and finding.hardware) or finding.key == CPU_KEY:
        return False
    return not any(f.state is State.ABSENT and f.runtime for f in findings if f.key == finding.key)


def _passed_over(broken: Iterable[Finding], winner: Finding) -> tuple[str, ...]:
    """Return a warning for each broken package; it says so if DeepSpeed's own backend takes its place."""
    return tuple(
        messages.left_to_deepspeed(finding)
        if winner.replaces and finding.key == winner.key and not finding.upstream
        else messages.broken(finding)
        for finding in broken
        if not finding.replaces
    )


def _take(
    findings: Sequence[Finding], winner: Finding, request: Request, warnings: tuple[str, ...]
) -> Verdict:
    if winner.upstream and winner.key not in (request.upstream or ()):
        return Verdict(Step.FAIL, None, tuple(findings), error=messages.unserved(winner, request.upstream))
    state = State.DEFERRED if winner.upstream else State.CHOSEN
    taken = winner.now(state)
    final = tuple(taken if f is winner else _outranked(f) for f in findings)
    step = Step.DEFER if winner.upstream else Step.CONSTRUCT
    return Verdict(step, taken, final, warnings)


def _outranked(finding: Finding) -> Finding:
    return finding.now(State.OUTRANKED) if finding.state in (State.PENDING, State.PRESENT) else finding


# --------------------------------------------------------------------------------- DS_ACCELERATOR=…


def _requested(findings: list[Finding], request: Request, key: str) -> Verdict:
    candidates = [finding for finding in findings if finding.key == key]
    if not key or not (candidates or key in (request.upstream or ())):
        error = messages.unknown(key, findings, request.upstream)
        return Verdict(Step.FAIL, None, tuple(findings), error=error)
    if not candidates:
        # A backend of the installed DeepSpeed that is not in the cascade of this version of core.
        unlisted = Finding(key, 0, State.PRESENT, "DeepSpeed's own backend, asked for", upstream=True)
        return _take([*findings, unlisted], unlisted, request, ())
    broken = [candidate for candidate in candidates if candidate.state is State.BROKEN]
    for place, candidate in enumerate(candidates):
        warnings = _passed_over(broken, candidate)
        if candidate.state is State.PENDING and (candidate.replaces or not candidate.upstream):
            if not _blocker(candidate, request):
                return Verdict(Step.CONFIRM, candidate, tuple(findings))
            candidates[place] = candidate.now(State.BLOCKED, messages.blocked(request.claimed))
            findings[findings.index(candidate)] = candidates[place]
        elif candidate.state is State.PRESENT or _deferrable(candidate):
            absent = candidate.state is State.NOT_INSTALLED
            no_device = (messages.no_device(candidate),) if absent else ()
            return _take(findings, candidate, request, (*warnings, *no_device))
    for candidate in candidates:
        if candidate.state is State.ABSENT and candidate.runtime and not candidate.replaces:
            warnings = _passed_over(broken, candidate)
            return _take(findings, candidate, request, (*warnings, messages.no_device(candidate)))
    error = messages.unavailable(key, candidates, request.upstream)
    return Verdict(Step.FAIL, None, tuple(findings), error=error)


def _deferrable(candidate: Finding) -> bool:
    able = candidate.runtime and candidate.state is not State.BROKEN
    return candidate.upstream and able and not candidate.replaces
