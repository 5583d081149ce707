# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops over the runtime's own operators: without these, with wrong ones, and with working ones, which are used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder import Implementation
from accel_testkit.suite import needs, results
from accel_testkit.suite.expect import expect
from accel_testkit.suite.runtime_ops import CALLS, Called, Change, apart, hidden, reloaded_ops

pytestmark = pytest.mark.tier("device")

_PROMISED = re.compile(r"\bworks? when first loaded\b")
_OPS = needs.ops(CALLS)


@pytest.mark.parametrize("name", _OPS)
def test_op_serves_without_the_runtime_s(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Without the operators that it calls, an op says so, and computes the same or is incompatible."""
    builder, device = accelerator.create_op_builder(name), accelerator.device()
    with reloaded_ops(), Called() as called:
        wanted = CALLS[name](builder.load(), device)
    if not called.names:
        return  # it calls none
    builder, found = accelerator.create_op_builder(name), ""
    with hidden(called.names), reloaded_ops(), Called() as still:
        compatible, before = builder.is_compatible(), getattr(builder, "reason", "plain torch")
        try:
            difference = apart(name, CALLS[name](builder.load(), device), wanted)
        except Exception as error:
            difference, found = float("inf"), f"{type(error).__name__}: {error}"
        reasons = before, getattr(builder, "reason", "plain torch")
    # What computes it now: plain torch, or another operator of the runtime.
    instead = [f"torch.ops.{op}" for op in still.names] or ["plain torch"]
    reported = all(any(way in reason for way in instead) for reason in reasons)
    serves = not still.names & called.names and difference <= 1 and reported
    named = any(f"torch.ops.{op} " in f"{reason} " for op in called.names for reason in reasons)
    lacks = all(f"no torch.ops.{op}" in reason for op in called.names for reason in reasons if op in reason)
    expect(
        serves and (lacks or not named) if compatible else found,
        f"{name} needs an operator that a release of the runtime may lack",
        found=f"without {', '.join(called.names)}: compatible {compatible}, {found or difference}, {reasons}",
        expected=f"the same numbers, with a reason that names {' and '.join(instead)}; or an incompatible builder",
        do="ask hasattr(torch.ops.<namespace>, name), in compatibility() and in load()",
    )


@pytest.mark.parametrize("name", _OPS)
def test_operator_that_works_is_used(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """What `load` tries on the device is used if it works, and otherwise the reason says why it is not."""
    builder, device = accelerator.create_op_builder(name), accelerator.device()
    promised = Implementation.VENDOR_OP in getattr(builder, "implementations", tuple)() and _PROMISED.search(
        str(getattr(builder, "reason", ""))
    )
    with reloaded_ops(), Called() as tried:
        op = builder.load()
    expect(
        tried.names or not promised,
        f"{name} does not try what it says that it tries",
        found=f"no operator is called by load(), and before it the reason was {promised and promised.string!r}",
        expected="a call of the operator, to see that it works",
        do="try the operator in load(), or use it without a promise",
    )
    with Called() as used:
        CALLS[name](op, device)
    idle = sorted(tried.names - used.names)
    # The operators of a simulated device work; a real one's may be wrong.
    reported = not results.simulated() and f"{idle[0] if idle else ''}" in str(getattr(builder, "reason", ""))
    expect(
        not idle or reported,
        f"{name} does not use what it has tried",
        found=f"{', '.join(idle)}; the reason is {getattr(builder, 'reason', '')!r}",
        expected="calls of these operators by the functions of the op",
        do="compare the trial with what the operator computes",
    )


def _flipped(tensor: torch.Tensor) -> torch.Tensor:
    """Each integer or code another one; each number a thirtieth larger."""
    return tensor * (1 + 1 / 30) if tensor.dtype.itemsize > 1 else _as(tensor, lambda codes: codes ^ 1)


def _without_small(tensor: torch.Tensor) -> torch.Tensor:
    """Small numbers are zero."""
    if tensor.dtype.itemsize == 1:
        return _as(tensor, lambda codes: codes * (codes.abs() % 128 > 5))
    return tensor * (tensor.abs() > _largest(tensor) / 500)


def _without_nan(tensor: torch.Tensor) -> torch.Tensor:
    """What is no number is one."""
    return tensor.nan_to_num(1.0, 2.0, -2.0) if tensor.dtype.itemsize > 1 else tensor


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    """Large numbers are smaller."""
    if tensor.dtype.itemsize == 1:
        return _as(tensor, lambda codes: codes - (codes.abs() % 128 > 110).to(codes.dtype))
    return torch.where(tensor.abs() > _largest(tensor) / 2, tensor * 0.9, tensor)


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().nan_to_num(0).max()) if tensor.numel() else 0.0


def _fails(tensor: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("the conformance suite makes this operator fail")


def _as(tensor: torch.Tensor, change: Change) -> torch.Tensor:
    """Change tensors of one byte as integers."""
    whole = tensor if tensor.dtype == torch.int8 else tensor.view(torch.uint8)
    return change(whole.to(torch.int16)).to(whole.dtype).view(tensor.dtype)


_SPOILED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": _flipped, "small": _without_small, "large": _narrow, "nan": _without_nan, "fails": _fails,
}  # fmt: skip


@pytest.mark.parametrize("how", _SPOILED)
@pytest.mark.parametrize("name", _OPS)
def test_operator_that_is_wrong_is_not_used(accelerator: DeepSpeedAccelerator, name: str, how: str) -> None:
    """If an operator that `load` tries is wrong or fails, the op computes without it, and the reason names it."""
    builder, device = accelerator.create_op_builder(name), accelerator.device()
    with reloaded_ops(), Called() as called:
        op = builder.load()
    if not called.names:
        return  # it tries none
    wanted = CALLS[name](op, device)
    builder = accelerator.create_op_builder(name)
    found: Any = ""
    # An optimizer's step is tried on a single number, which is the largest one.
    with reloaded_ops(), Called(_SPOILED[how], how != "small", called.names):
        try:
            found = apart(name, CALLS[name](builder.load(), device), wanted)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
    reason = str(getattr(builder, "reason", ""))
    expect(
        isinstance(found, float)
        and found <= 1
        and any(op.partition(".")[2] in reason for op in called.names),
        f"{name} uses an operator that is wrong",
        found=f"{found}, with the reason {reason!r}",
        expected="the right numbers without it, and a reason that names the operator",
        do="let load() try the operator on numbers of all sizes and what is no number",
    )
