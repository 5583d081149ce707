# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare a vendor's fused Adam with plain torch in float64, for every combination of flags that DeepSpeed uses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from accel_ops.fused_optimizers import multi_tensor_adam

_SHAPES = [(1,), (31, 3), (2, 3, 4), (257,)]
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
    for mode, correct, decay in itertools.product((0, 1), (0, 1), (0.0, 0.1)):
        kinds = (dtype, dtype, moments, moments)
        start = [[torch.rand(shape).to(kind) for shape in _SHAPES] for kind in kinds]
        found = [[tensor.to(device) for tensor in tensors] for tensors in start]
        wanted = [[tensor.double() for tensor in tensors] for tensors in start]
        for number in (1, 2, 3):
            constants = (1e-2, 0.8, 0.95, 1e-4, number, mode, correct, decay)
            step(2048, torch.zeros(1, dtype=torch.int32, device=device), found, *constants)
            multi_tensor_adam(2048, torch.zeros(1), wanted, *constants)
        for ours, theirs in zip(found[1:], wanted[1:], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                worst = max(worst, float((a.cpu().double() - b).abs().max()) / unit)
    return worst


def apart(
    step: Callable[..., Any],
    device: str | torch.device,
    dtype: torch.dtype,
    cases: int,
    float64: bool,
) -> float:
    """Return the largest difference from plain torch after one random step, in units of the type's eps.

    Numbers above 1 count by their relative difference. float64: plain torch computes in it, else as it would on the
    device.
    """
    generator, worst = torch.Generator().manual_seed(0), 0.0
    for _ in range(cases):
        start, constants = _random_step(generator, dtype)
        found = [[tensor.to(device, copy=True) for tensor in tensors] for tensors in start]
        wanted = [
            [tensor.double() if float64 else tensor.to(device, copy=True) for tensor in tensors]
            for tensors in start
        ]
        for function, lists in ((step, found), (multi_tensor_adam, wanted)):
            function(2048, torch.zeros(1, dtype=torch.int32), lists, *constants)
        for ours, theirs in zip(found[1:], wanted[1:], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                b = b.cpu().double()
                error = float(((a.cpu().double() - b).abs() / b.abs().clamp(min=1)).max())
                worst = max(worst, error / torch.finfo(dtype).eps)
    return worst


def _random_step(
    generator: torch.Generator, dtype: torch.dtype
) -> tuple[list[list[torch.Tensor]], tuple[float, ...]]:
    """Return four lists of tensors, and the constants after them."""

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    shapes = [_SHAPES[int(draw(0, len(_SHAPES)))] for _ in range(int(draw(1, 6)))]
    lists = [[torch.rand(shape, generator=generator).to(dtype) for shape in shapes] for _ in range(4)]
    lists[0] = [2 * tensor - 1 for tensor in lists[0]]
    rates = 10 ** draw(-4, -1), draw(0.5, 0.99), draw(0.5, 0.999), 10 ** draw(-8, -2)
    flags = int(draw(0, 2)), int(draw(0, 2)), draw(0, 0.2)
    return lists, (*rates, int(draw(1, 1000)), *flags)
