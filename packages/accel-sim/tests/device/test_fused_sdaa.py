# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.sdaa against float64."""

from typing import Any

import torch

from .conftest import Device
from .float64 import adam64, agrees, cases, steps, swiglu


def test_fused_adam(device: Device) -> None:
    def call(given: list[Any], step: int, decoupled: int, bias_correction: int) -> None:
        modes = decoupled, step, bias_correction
        torch.ops.sdaa.fused_adam(*given, [], 0.9, 0.99, 1e-6, 0.01, 0.1, *modes)

    steps(device, call, adam64, decoupled=1, bias_correction=1, step=5)


def test_swiglu(device: Device) -> None:
    for random, dtype in cases(6):
        length, heads, size = random.shape(3)
        x = random.tensor((1, length, heads, 2 * size), dtype).contiguous()
        agrees(device, torch.ops.sdaa.swiglu, lambda x, *_: swiglu(x[0], -1), x, length, heads, size)
