# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Group failed checks by the method or op that explains them: one cause each, its simplest check first."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest

from accel_core.op_builder.names import UPSTREAM
from accel_testkit.suite.needs import public_members

#: The files of the most basic checks, whose failures explain those of other files; the rest follows in any order.
_BASIC = (
    "package", "probe", "answers", "identity", "device", "collectives", "environment", "tensors", "memory", "random",
    "streams", "pinned_memory", "graphs", "op_table", "op_steps",
)  # fmt: skip
#: Most checks call these to put a tensor somewhere: only a check that names no other method is about them.
_EVERYWHERE = {
    "create_op_builder", "current_device", "device", "device_count", "device_name", "set_device", "synchronize",
}  # fmt: skip
#: What the processes call that the checks of a file start.
_IN_PROCESSES = {
    "collectives": {"communication_backend_name"},
    "processes": {"visible_devices_envs"},
    "training": {"communication_backend_name"},
}
#: The share of failed ones among the basic checks of a method from which it explains what others report.
_MOSTLY = 0.25


@dataclass(frozen=True)
class About:
    """What a check is about: methods of the interface and builders, by name.

    focus: what its parameter, its markers, else its own lines name. uses: what its helpers and messages name, too.
    line:  its place in its file, which begins with what is simple.
    """

    focus: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    line: int = 0

    @classmethod
    def of(cls, plain: tuple[list[str], list[str], int]) -> About:
        """Return what `plain()` wrote down, perhaps in another process."""
        return cls(frozenset(plain[0]), frozenset(plain[1]), plain[2])

    def plain(self) -> tuple[list[str], list[str], int]:
        """Return lists, for pytest-xdist."""
        return sorted(self.focus), sorted(self.uses), self.line


@dataclass
class Cause:
    """Failed checks with one explanation; the first one is the simplest, the others may pass once it does."""

    subject: str
    checks: list[str] = field(default_factory=list)


@cache
def _known() -> frozenset[str]:
    return frozenset({*public_members(), *UPSTREAM})


def about(item: pytest.Item) -> About:
    """Return what a collected check is about."""
    known = _known()
    function: FunctionType = getattr(item, "function")  # noqa: B009  (an item that pytest made of a function)
    own, helpers = map(set, _names(function))
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    named = {text for value in parameters.values() for text in _texts(value)} & known
    named |= {name for marker in item.iter_markers("needs") for name in marker.args} & set(UPSTREAM)
    named |= _words(function.__doc__ or "") & known - _EVERYWHERE if not named else set()
    # Such as RESETS, which has the figure of each reset.
    tables = [value for name in own if isinstance(value := function.__globals__.get(name), dict)]
    helpers |= {text for table in tables for name in named for text in _texts(table.get(name))}
    own = own & known
    uses = (own | helpers | _IN_PROCESSES.get(item.path.stem.removeprefix("test_"), set())) & known
    focus = named or own - _EVERYWHERE or own
    return About(frozenset(focus), frozenset(named | uses), function.__code__.co_firstlineno)


def group(failed: Mapping[str, str], tried: Mapping[str, About]) -> list[Cause]:
    """Group failed checks, given with their messages, by cause: the most basic first.

    tried: every check that passed or failed, with what it is about.
    """
    left = {check: _focus(check, failed[check], tried) for check in failed}
    causes = []
    while left:
        subject = max(
            {name for names in left.values() for name in names},
            key=lambda name: (
                _weight(name, left) / math.sqrt(_weight(name, left) + _passed(name, failed, tried)),
                name,
            ),
        )
        checks = [check for check, names in left.items() if subject in names]
        causes.append(Cause(subject, sorted(checks, key=lambda check: _rank(check, tried))))
        left = {check: names for check, names in left.items() if check not in checks}
    causes.sort(key=lambda cause: _rank(cause.checks[0], tried))
    return _merged(causes, failed, tried)


def _focus(check: str, message: str, tried: Mapping[str, About]) -> frozenset[str]:
    """Return what to group a failed check by: its focus, else the methods in its message, else its file."""
    file = check.partition(".")[0]
    return tried[check].focus or frozenset(_words(message) & _known()) or frozenset({f"test_{file}"})


def _weight(name: str, checks: Mapping[str, frozenset[str]]) -> float:
    return sum(1 / len(names) for names in checks.values() if name in names)


def _passed(name: str, failed: Mapping[str, str], tried: Mapping[str, About]) -> float:
    return _weight(name, {check: about.focus for check, about in tried.items() if check not in failed})


def _rank(check: str, tried: Mapping[str, About]) -> tuple[int, int, int, str]:
    file = check.partition(".")[0]
    place = _BASIC.index(file) if file in _BASIC else len(_BASIC)
    return place, len(tried[check].focus) or len(_known()), tried[check].line, check


def _merged(causes: Sequence[Cause], failed: Mapping[str, str], tried: Mapping[str, About]) -> list[Cause]:
    """Put a group below a more basic one, if all its checks use the method that is wrong there."""
    kept: list[Cause] = []
    for cause in causes:
        for basic in kept:
            alone = [
                check
                for check, about in tried.items()
                if about.focus == {basic.subject} and check.partition(".")[0] in _BASIC
            ]
            mostly = sum(check in failed for check in alone) >= _MOSTLY * len(alone)
            if mostly and all(
                basic.subject in tried[check].uses | _words(failed[check]) for check in cause.checks
            ):
                basic.checks += cause.checks
                break
        else:
            kept.append(cause)
    return kept


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _texts(part)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@cache
def _names(function: FunctionType) -> tuple[set[str], set[str]]:
    """Return the names in a function, and those in its texts and in the suite's functions that it calls."""
    own, texts = _of_code(function.__code__)
    helpers = set(texts)
    seen, queue = {function}, [function]
    while queue:
        caller = queue.pop()
        for name in _of_code(caller.__code__)[0]:
            called = caller.__globals__.get(name)
            if isinstance(called, FunctionType) and called not in seen and "suite" in called.__module__:
                seen.add(called)
                queue.append(called)
                helpers |= set.union(*_of_code(called.__code__))
    return own, helpers


@cache
def _of_code(code: CodeType) -> tuple[set[str], set[str]]:
    names, texts = set(code.co_names), set()
    for constant in code.co_consts:
        if isinstance(constant, str):
            texts |= _words(constant)
        elif inspect.iscode(constant):
            inner = _of_code(constant)
            names, texts = names | inner[0], texts | inner[1]
    return names, texts
