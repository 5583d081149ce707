# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Facts that one check expects: each has its own words, and the check names those that do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel_testkit.suite.expect import expect

#: So many that do not hold are named.
_NAMED = 12


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the text of its exception."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Holds(dict[str, Any]):
    """What has to hold, by what it says; what did not hold once does not hold."""

    def __setitem__(self, what: str, held: Any) -> None:
        super().__setitem__(what, held and self.get(what, True))

    def equal(self, what: str, found: Any, wanted: Any) -> None:
        """Expect an equal value; True and 1 are not equal here."""
        alike = type(found) is type(wanted) if isinstance(wanted, (bool, int)) else True
        self[f"{what}: {found!r:.300}, expected {wanted!r:.300}"] = alike and bool(found == wanted)

    def same(self, what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
        """Expect a tensor of the same type, shape and content."""
        alike = (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        self[what] = alike and torch.equal(found.detach().cpu(), wanted.detach().cpu())

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
