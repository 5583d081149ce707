# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fail a check in four parts, without a traceback through the suite: one fact, or those of many that do not hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import pytest
import torch

#: So many that do not hold are named.
_NAMED = 12


def expect(holds: object, what: str, *, found: object, expected: str, do: str) -> None:
    """Fail the check unless `holds`: what failed, what was found, what was expected, what to do."""
    __tracebackhide__ = True
    if not holds:
        fail(what, found=found, expected=expected, do=do)


def fail(what: str, *, found: object, expected: str, do: str) -> NoReturn:
    """Fail the check. found: text as it is, any other value by its repr."""
    __tracebackhide__ = True
    text = found if isinstance(found, str) else repr(found)
    parts = {"found": text, "expected": expected, "do": do}
    lines = (f"\n  {name + ':':9} " + part.replace("\n", "\n            ") for name, part in parts.items())
    pytest.fail(what + "".join(lines), pytrace=False)


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


def expect_equal(what: str, found: Any, wanted: Any, do: str) -> None:
    """Fail the check unless the values are equal; True and 1 are not equal here."""
    __tracebackhide__ = True
    expect(_equal(found, wanted), f"{what} is wrong", found=repr(found), expected=repr(wanted), do=do)


def _equal(found: Any, wanted: Any) -> bool:
    alike = type(found) is type(wanted) if isinstance(wanted, (bool, int)) else True
    return alike and bool(found == wanted)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the text of its exception."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Holds(dict[str, Any]):
    """Named conditions. A condition that failed once stays failed."""

    def __setitem__(self, what: str, held: Any) -> None:
        super().__setitem__(what, held and self.get(what, True))

    def equal(self, what: str, found: Any, wanted: Any) -> None:
        """Expect an equal value; True and 1 are not equal here."""
        self[f"{what}: {found!r:.300}, expected {wanted!r:.300}"] = _equal(found, wanted)

    def same(self, what: str, found: Any, wanted: torch.Tensor) -> None:
        """Expect a tensor of the same type, shape and content."""
        alike = isinstance(found, torch.Tensor) and (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        self[what] = alike and torch.equal(found.detach().cpu(), wanted.detach().cpu())

    def near(self, what: str, found: torch.Tensor, wanted: torch.Tensor, most: float | torch.Tensor) -> None:
        """Expect a tensor of the same shape whose numbers are at most so far apart; `most` may be a tensor, too."""
        if found.shape != wanted.shape:
            self[f"{what}: shape {tuple(found.shape)}, expected {tuple(wanted.shape)}"] = False
            return
        apart = (found.detach().cpu().double() - wanted.detach().cpu().double()).abs()
        most = most.detach().cpu().double() if isinstance(most, torch.Tensor) else most
        # Equal numbers are near, also where no difference is allowed.
        ratios = torch.where(apart == 0, 0.0, apart / most)
        largest = float(ratios.max()) if ratios.numel() else 0.0
        self[f"{what}: {largest:.3g} times as far apart as allowed"] = largest <= 1

    def raises(self, cls: type[Exception], what: str, call: Callable[[], Any]) -> None:
        """Expect an exception of this type."""
        try:
            self[f"{what} returns {call()!r:.100}, expected {cls.__name__}"] = False
        except cls:
            self[what] = True
        except Exception as error:
            self[f"{what} raises {type(error).__name__}: {error}, expected {cls.__name__}"] = False

    def expect(self, what: str, do: str) -> None:
        """Fail the check unless all of it holds."""
        __tracebackhide__ = True
        broken = [name for name, held in self.items() if not held]
        more = f", and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        expect(
            not broken,
            f"{what} is not what DeepSpeed expects",
            found=f"not so: {'; '.join(broken[:_NAMED])}{more}",
            expected=f"all {len(self)} of what this check tries",
            do=do,
        )
