# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of a kernel for Adam or Lion compared with plain torch in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from accel_ops.optimizers import fused

FLAG = torch.zeros(1, dtype=torch.int32)
#: Parameters in bfloat16 with moments in float32, which torch's operators refuse.
HALVES = (torch.bfloat16, torch.bfloat16, torch.float32)


def take(op: Any, lists: Sequence[Any], step: int = 3) -> None:
    """Take a step of AdamW on four lists of tensors, of Lion on three."""
    if len(lists) == 4:
        op.multi_tensor_adam(2048, FLAG, lists, 0.01, 0.9, 0.99, 1e-6, step, 1, 1, 0.1)
    else:
        op.multi_tensor_lion(2048, FLAG, lists, 0.01, 0.9, 0.99, step, 0.1)


def expect_steps_of_float64(
    op: Any, kinds: tuple[torch.dtype, ...], states: int, device: str, begin: int = 0
) -> None:
    """Take three steps on tensors of types (gradient, parameter, state), without their first `begin` elements.

    Raise AssertionError unless each step rounds once, and gradients stay as they are.
    """
    columns = kinds[0], kinds[1], *[kinds[2]] * states
    generator = torch.Generator().manual_seed(7)
    start = [[torch.rand(n, generator=generator).to(kind) for n in (1, 7, 600, 5000)] for kind in columns]
    lists = [[tensor.to(device)[begin:] for tensor in column] for column in start]
    wanted = [[tensor[begin:].double() for tensor in column] for column in start]
    for step in (1, 2, 3):
        take(op, lists, step)
        take(fused, wanted, step)
    for place, (ours, theirs) in enumerate(zip(lists, wanted, strict=True)):
        unit = 3 * torch.finfo(columns[place]).eps if place else 0
        for a, b in zip(ours, theirs, strict=True):
            assert a.device.type == torch.device(device).type
            torch.testing.assert_close(a.cpu().double(), b, rtol=unit, atol=unit)
