# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of a vendor's fused optimizers beside plain torch in float64: Adam with all of DeepSpeed's flags, and Lion."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from accel_ops import fused_optimizers, reference
from accel_ops.fused_optimizers import AdamStep

_SHAPES = [(1,), (31, 3), (2, 3, 4), (257,)]
#: Rate, betas and epsilon: DeepSpeed's defaults, which half types do not hold, and others.
_CONSTANTS = ((1e-2, 0.9, 0.999, 1e-8), (1e-2, 0.8, 0.95, 1e-4))
_ROUNDING = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def largest_error(
    step: Callable[..., Any],
    device: str | torch.device,
    dtype: torch.dtype = torch.float32,
    moments: torch.dtype = torch.float32,
) -> float:
    """Return the largest error of parameters and moments after three steps.

    Unit: four roundings of the coarser type, so that a correct step is below 1.

    step: called as DeepSpeed's `multi_tensor_adam`, with and without decoupled decay and bias correction.
    """
    torch.manual_seed(9)
    unit, worst = 4 * max(_ROUNDING[dtype], _ROUNDING[moments]), 0.0
    for mode, correct, decay, rates in itertools.product((0, 1), (0, 1), (0.0, 0.1), _CONSTANTS):
        kinds = (dtype, dtype, moments, moments)
        start = [[torch.rand(shape).to(kind) for shape in _SHAPES] for kind in kinds]
        for tensors in (start[0], *start[2:]):
            tensors[1][0] = 0.0  # rows without a gradient so far
        found = [[tensor.to(device) for tensor in tensors] for tensors in start]
        wanted = [[tensor.double() for tensor in tensors] for tensors in start]
        for number in (1, 2, 3):
            constants = (*rates, number, mode, correct, decay)
            step(2048, torch.zeros(1, dtype=torch.int32, device=device), found, *constants)
            adam = AdamStep(torch.zeros(1), *constants)
            reference.step_lists(reference.adam, wanted, **adam.hyperparameters)
        for ours, theirs in zip(found[1:], wanted[1:], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                worst = max(worst, float((a.cpu().double() - b).abs().max()) / unit)
    return worst


FLAG = torch.zeros(1, dtype=torch.int32)
#: Parameters in bfloat16 with moments in float32, which torch's operators refuse.
HALVES = (torch.bfloat16, torch.bfloat16, torch.float32)
_SIZES = (1, 7, 600, 5000)
_STEPS = (1, 2, 3)


def take(op: Any, lists: Sequence[Any], step: int = 3) -> None:
    """Take a step of AdamW on four lists of tensors, of Lion on three."""
    if len(lists) == 4:
        op.multi_tensor_adam(2048, FLAG, lists, 0.01, 0.9, 0.99, 1e-6, step, 1, 1, 0.1)
    else:
        op.multi_tensor_lion(2048, FLAG, lists, 0.01, 0.9, 0.99, step, 0.1)


def expect_steps_of_float64(
    op: Any, kinds: tuple[torch.dtype, ...], states: int, device: str, begin: int = 0
) -> None:
    """Take three steps; raises AssertionError unless each step rounds once, and gradients stay as they are.

    kinds:  types of gradient, parameter and states.
    states: two of Adam, one of Lion.
    begin:  elements that are left out at the beginning of each tensor, so that it is not aligned.
    """
    columns = kinds[0], kinds[1], *[kinds[2]] * states
    generator = torch.Generator().manual_seed(7)
    start = [[torch.rand(size, generator=generator).to(kind) for size in _SIZES] for kind in columns]
    lists = [[tensor.to(device)[begin:] for tensor in column] for column in start]
    wanted = [[tensor[begin:].double() for tensor in column] for column in start]
    for step in _STEPS:
        take(op, lists, step)
        take(fused_optimizers, wanted, step)
    for place, (ours, theirs) in enumerate(zip(lists, wanted, strict=True)):
        unit = len(_STEPS) * torch.finfo(columns[place]).eps if place else 0
        for a, b in zip(ours, theirs, strict=True):
            assert a.device.type == torch.device(device).type
            torch.testing.assert_close(a.cpu().double(), b, rtol=unit, atol=unit)
