# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare a vendor's fused Adam with plain torch in float64, for every combination of flags that DeepSpeed uses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from accel_core.op_builder.steps.adam import multi_tensor_adam

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
