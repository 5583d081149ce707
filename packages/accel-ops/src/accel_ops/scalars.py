# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Options of a step as the numbers that the C interface takes. Tensors of one element are numbers too, as upstream."""

from __future__ import annotations

from typing import Any

from accel_ops.errors import InvalidOption

_LARGEST_STEP = 2**63 - 1


def real(name: str, value: Any) -> float:
    """Return a float; raises InvalidOption for what is not a number."""
    if isinstance(value, (float, int)):
        return float(value)
    try:
        if hasattr(value, "__float__"):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor of several elements, or without values
        pass
    raise _invalid(name, value, "a number, or a tensor with one element")


def step_number(value: Any) -> int:
    """Return the number of a step; raises InvalidOption for all but integers from 1. A float is none, as upstream."""
    try:
        if not isinstance(value, float) and hasattr(value, "__int__"):
            number = int(value)
            if 1 <= number <= _LARGEST_STEP:
                return number
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    raise _invalid("step", value, "an integer, or a tensor with one element: steps of Adam count from 1")


def _invalid(name: str, value: Any, expected: str) -> InvalidOption:
    return InvalidOption(
        what=f"an optimizer step cannot be taken with this {name}",
        found=f"{name}={value!r} ({type(value).__name__})",
        expected=expected,
        do=f"correct the code that passes {name}",
    )
