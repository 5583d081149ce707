# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The verdict on a mutant: which check notices it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from typing import Any

import pytest

from accel_testkit.mutation import checks, patch
from accel_testkit.mutation.forks import Done, Steps, Task
from accel_testkit.mutation.reach import Line
from accel_testkit.mutation.source import Mutant
from accel_testkit.suite.target import Target

#: Seconds for a child beyond several times what its checks took without a mutant; a guard against hangs.
_GRACE = 30.0
_SLOWER = 5.0
#: Checks, or their shared fixtures, that take longer come last.
_LONG = 1.0


class Outcome(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    BROKEN = "broken at construction"


@dataclass(frozen=True)
class Verdict:
    """A mutant with its outcome. by: the check that noticed; note: why, in one line."""

    mutant: Mutant
    outcome: Outcome
    by: str = ""
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A check as it ran without a mutant.

    lines: what it executes, with its fixtures. shared: seconds of each shared fixture that it uses.
    """

    item: pytest.Item
    lines: frozenset[Line]
    seconds: float
    shared: tuple[tuple[str, float], ...]

    @property
    def cost(self) -> float:
        """Seconds if nothing else has set up its fixtures."""
        return self.seconds + sum(seconds for _, seconds in self.shared)


def in_order(found: Sequence[Check]) -> list[Check]:
    """Sort checks: file by file, those whose checks execute least first, and long ones at the end."""
    files: dict[str, list[int]] = {}
    for check in found:
        files.setdefault(str(check.item.path), []).append(len(check.lines))

    def key(check: Check) -> tuple[float, float, str]:
        file = str(check.item.path)
        if check.cost > _LONG:
            return check.cost, 0, file
        return 0, sum(files[file]) / len(files[file]), file

    return sorted(found, key=key)


@dataclass
class Judge:
    """Judges mutants by the checks of one session.

    constructing: lines that the accelerator's constructor executes. caches: emptied in each child, as what the
    parent has computed came from the original. readers: lines that read a name, for tables.
    """

    target: Target
    checks: Sequence[Check]
    live: patch.Live
    constructing: frozenset[Line]
    caches: Sequence[_lru_cache_wrapper[Any]] = ()
    readers: Mapping[str, frozenset[Line]] = field(default_factory=dict)
    unsteady: set[str] = field(default_factory=set)

    def reaching(self, mutant: Mutant) -> list[Check]:
        """Return the checks that execute the mutated lines, in the order in which they are run."""
        lines = self._lines(mutant)
        if not lines:
            return in_order(self.checks)
        return in_order([check for check in self.checks if not check.lines.isdisjoint(lines)])

    def _lines(self, mutant: Mutant) -> frozenset[Line]:
        """Return the lines of which a check has to execute one; none if that is unknown."""
        if mutant.table:
            return self.readers.get(mutant.function.rpartition(".")[2], frozenset())
        name = str(mutant.source.path)
        return frozenset((name, line) for line in range(mutant.first, mutant.last + 1))

    def verdict(self, mutant: Mutant) -> Steps[Verdict]:
        """Run the checks that can notice a mutant, up to the first that does."""
        left = self.reaching(mutant)
        if not left:
            return Verdict(mutant, Outcome.SURVIVED, note="no check executes these lines")
        count = len(left)
        while left:
            done = yield self._task(mutant, left)
            broken = next((m["broken"] for m in done.messages if isinstance(m, dict) and "broken" in m), "")
            if broken:
                return Verdict(mutant, Outcome.BROKEN, note=broken)
            number, why = _failure(done)
            if number is None:
                break
            if number and not (yield from self._is_noticed(mutant, left[: number + 1])):
                self.unsteady.add(left[number].item.nodeid)
                left = left[number + 1 :]
                continue
            return Verdict(mutant, Outcome.KILLED, by=_id(left[number]), note=why)
        return Verdict(mutant, Outcome.SURVIVED, note=f"{count} checks execute these lines, none fails")

    def _is_noticed(self, mutant: Mutant, ran: Sequence[Check]) -> Steps[bool]:
        """Return whether the last check fails for the mutant's sake, not because others ran before it."""
        alone = yield self._task(mutant, ran[-1:])
        if _failure(alone)[0] is not None:
            return True
        control = yield self._task(None, ran)
        return _failure(control)[0] is None

    def _task(self, mutant: Mutant | None, ran: Sequence[Check]) -> Task:
        shared = dict(pair for check in ran for pair in check.shared)
        seconds = sum(check.seconds for check in ran) + sum(shared.values())
        return Task(partial(self._work, mutant, ran), _GRACE + _SLOWER * seconds)

    def _work(self, mutant: Mutant | None, ran: Sequence[Check], folder: Path, keep: Any) -> None:
        checks.enter(folder)
        for cache in self.caches:
            cache.cache_clear()
        if mutant is not None:
            patch.install(mutant, self.live)
            patch.overlay(mutant, folder)
            if not self.constructing.isdisjoint(self._lines(mutant)):
                try:
                    self.target.construct()
                except Exception as error:
                    keep({"broken": f"{type(error).__name__}: {error}".splitlines()[0]})
                    return
        checks.until_one_fails([check.item for check in ran], keep)


def _failure(done: Done) -> tuple[int | None, str]:
    """Return the number of the check that failed or did not end, and how; None if all passed."""
    for message in done.messages:
        if isinstance(message, dict) and "failed" in message:
            return int(message["failed"]), _first_line(str(message["text"]))
    if done.ended:
        begun = [message for message in done.messages if isinstance(message, int)]
        return (begun[-1] if begun else 0), f"the process {done.ended}"
    return None, ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:200]


def _id(check: Check) -> str:
    file = check.item.path.stem.removeprefix("test_")
    return f"{file}.{check.item.name.removeprefix('test_')}"
