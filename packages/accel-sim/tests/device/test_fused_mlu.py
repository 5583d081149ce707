# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.torch_mlu against float64."""

import math
from typing import Any

import torch

from .conftest import Device
from .float64 import adam64, agrees, cases, steps


def _flag(lists: list[Any]) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=lists[0][0].device)


def test_fused_adam(device: Device) -> None:
    def call(given: list[Any], step: int, decoupled: int, bias_correction: int) -> None:
        flag, modes = _flag(given), (step, decoupled, bias_correction)
        assert torch.ops.torch_mlu.fused_adam(flag, *given, 0.01, 0.9, 0.99, 1e-6, *modes, 0.1)
        assert not flag.item()

    steps(device, call, adam64, decoupled=1, bias_correction=1, step=5)


def test_fused_l2_norm(device: Device) -> None:
    def reference(_flag: Any, tensors: list[Any], per_tensor: bool) -> Any:
        norms = [math.sqrt((each * each).sum()) for each in tensors]
        each = torch.tensor(norms if per_tensor else [], dtype=torch.float64)
        return torch.tensor([math.hypot(*norms)]), each

    flag = torch.zeros(1, dtype=torch.int32)
    for random, dtype in cases(4):
        tensors = [random.tensor(random.shape(), dtype) for _ in range(random.number(1, 4))]
        for each in (True, False):
            agrees(device, torch.ops.torch_mlu.fused_l2_norm, reference, flag, tensors, each)
