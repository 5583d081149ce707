# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fail a check in four parts, without a traceback through the suite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import pytest

from accel_core.errors import four_parts


def expect(holds: object, what: str, *, found: object, expected: str, do: str) -> None:
    """Fail the check unless `holds`: what failed, what was found, what was expected, what to do."""
    __tracebackhide__ = True
    if not holds:
        fail(what, found=found, expected=expected, do=do)


def fail(what: str, *, found: object, expected: str, do: str) -> NoReturn:
    """Fail the check. found: text as it is, any other value by its repr."""
    __tracebackhide__ = True
    text = found if isinstance(found, str) else repr(found)
    pytest.fail(four_parts(what, found=text, expected=expected, do=do), pytrace=False)


def factor(found: float, wanted: float) -> str:
    """Name the factor of 1000 or 1024 between what was found and what was wanted; empty if there is none."""
    if found <= 0 or wanted <= 0:
        return ""
    ratio = max(found / wanted, wanted / found)
    for power in (1, 2, 3):
        base = min((1000, 1024), key=lambda base: abs(ratio / base**power - 1))
        if abs(ratio / base**power - 1) < 0.12:
            return f"{base**power} times too {'large' if found > wanted else 'small'}: another unit?"
    return ""


def largest(differences: Iterable[float]) -> float:
    """Return the largest difference; inf where one is nan, which `max` ignores unless it comes first."""
    apart = list(differences)
    return math.inf if any(map(math.isnan, apart)) else max(apart)


def expect_type(value: object, cls: type, what: str, *, do: str) -> None:
    """Fail the check unless the value is exactly of this type: a bool is no int here."""
    __tracebackhide__ = True
    expect(
        type(value) is cls,
        f"{what} has the wrong type",
        found=f"{value!r} ({type(value).__name__})",
        expected=cls.__name__,
        do=do,
    )


def expect_raises(cls: type[Exception], call: Callable[[], Any], what: str, *, do: str) -> Exception:
    """Fail the check unless the call raises this type; return the exception."""
    __tracebackhide__ = True
    try:
        found = f"no exception; it returned {call()!r}"
    except cls as error:
        return error
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    fail(what, found=found, expected=f"{cls.__name__} (or a type derived from it)", do=do)
