# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op mixed types: half-precision parameters with float32 states, lists of several types, norms beyond float16."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import op_steps
from accel_testkit.suite.expect import expect, largest
from accel_testkit.suite.op_steps import STEPS, StepOp, Tensors, Values

pytestmark = pytest.mark.tier("device")

_CASES = [
    pytest.param(name, dtype, marks=pytest.mark.needs(name), id=f"{name}-{short}")
    for name in STEPS
    for dtype, short in ((torch.bfloat16, "bf16"), (torch.float16, "fp16"))
]
#: A rate and a decay that change a half-precision parameter by far more than its rounding.
_LARGE = {"lr": 0.25, "decay": 0.5}


def _before(step: StepOp, types: tuple[torch.dtype, ...], states: torch.dtype | None) -> list[Tensors]:
    """Gradients, parameters and states on the host, one tensor of each type; no sum of them is near zero.

    states: their type, None for the parameters'.
    """
    generator = torch.Generator().manual_seed(59)
    return [
        [
            (torch.rand(65, generator=generator) * 0.5 + 0.25).to(kind if number < 2 else states or kind)
            for kind in types
        ]
        for number in range(2 + step.states)
    ]


def _stepped(
    step: StepOp, op: Any, before: list[Tensors], place: torch.device, values: Values
) -> list[Tensors]:
    tensors = [[tensor.to(place, copy=True) for tensor in group] for group in before]
    if step.many:
        step.call(op, tensors, values)
    else:
        for one in zip(*tensors, strict=True):
            step.call(op, [[tensor] for tensor in one], values)
    return [[tensor.cpu() for tensor in group] for group in tensors]


def _roundings(step: StepOp, before: list[Tensors], after: list[Tensors], values: Values) -> float:
    """How far parameters and states are from float64's, in roundings of each one's own type to numbers near 1."""
    ratios = []
    for number in range(len(before[0])):
        wanted = step.wanted(*(group[number].double() for group in before), **values)
        for found, exact in zip((group[number] for group in after[1:]), wanted, strict=False):
            rounding = max(torch.finfo(found.dtype).eps, 1e-6)
            ratios.append(float((found.double() - exact).abs().max()) / rounding)
    return largest(ratios)


@pytest.mark.parametrize(("name", "dtype"), _CASES)
@pytest.mark.parametrize("states", [torch.float32, None], ids=["float32 states", "states of its type"])
def test_each_type_keeps_its_precision(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: torch.dtype, states: torch.dtype | None
) -> None:
    """A half-precision parameter beside one of float32 is stepped by every hyperparameter, or refused.

    States stay as precise as their own type, whatever the parameter's, and whatever is first in a list.
    """
    step = STEPS[name]
    if step.on_device and dtype not in accelerator.supported_dtypes():
        return
    place = torch.device(accelerator.device() if step.on_device else "cpu")
    settings = next(iter(step.variants.values()))
    values = {**step.schedule()[0], **_LARGE, **settings}
    before = _before(step, (dtype, torch.float32), states)
    op = created(name, op_steps.FIRST_ID, settings)
    try:
        after = _stepped(step, op, before, place, {**values, "id": op_steps.FIRST_ID})
    except Exception:  # refused
        return
    error = _roundings(step, before, after, values)
    expect(
        error <= 4,
        f"{step.function} of {name} mixes types up: {dtype} beside float32, states of {states or 'the same types'}",
        found=f"an error of {error:.3g} roundings of the tensor's type",
        expected="at most 4 beside float64",
        do="convert each tensor by its own type; compute in float32",
    )


@pytest.mark.needs("FusedLambBuilder")
def test_norms_of_half_types_do_not_overflow(accelerator: DeepSpeedAccelerator) -> None:
    """The trust ratio of float16 tensors is right though the squares of their norms are beyond float16."""
    if torch.float16 not in accelerator.supported_dtypes():
        return
    step, place = STEPS["FusedLambBuilder"], torch.device(accelerator.device())
    values = {
        **step.schedule()[0],
        **step.variants["corrected"],
        "lr": 0.01,
        "decay": 0.0,
        "bounds": (0.01, 1e4),
    }
    numbers = [torch.full((4096,), number, dtype=torch.float64) for number in (0.5, 200.0, 0.25, 0.25)]
    tensors = [number.to(place, torch.float16) for number in numbers]
    op = accelerator.create_op_builder("FusedLambBuilder").load()
    op_steps.lamb(op, tensors, tensors[1].new_empty(0), values)
    wanted = step.wanted(*numbers, **values)
    error = float((tensors[1].cpu().double() - wanted[0]).abs().max())
    expect(
        error <= 0.25,
        "lamb of large float16 parameters computes wrongly",
        found=f"an error of {error:g}, of parameters of 200",
        expected=f"at most 0.25: a step with the trust ratio {float(wanted[3]):g}",
        do="sum squares in float32",
    )
