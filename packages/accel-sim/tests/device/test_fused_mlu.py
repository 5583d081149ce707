# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.torch_mlu against float64."""

import math
from typing import Any

import torch

from .conftest import Device
from .float64 import adam64, agrees, cases, lamb64, sgd64, steps


def _flag(lists: list[Any]) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=lists[0][0].device)


def test_fused_adam(device: Device) -> None:
    def call(given: list[Any], step: int, decoupled: int, bias_correction: int) -> None:
        flag, modes = _flag(given), (step, decoupled, bias_correction)
        assert torch.ops.torch_mlu.fused_adam(flag, *given, 0.01, 0.9, 0.99, 1e-6, *modes, 0.1)
        assert not flag.item()

    steps(device, call, adam64, decoupled=1, bias_correction=1, step=5)


def test_fused_lamb(device: Device) -> None:
    def call(
        given: list[Any], norm: int, limit: int, nvlamb: int, averaging: int, step: int, decay: int
    ) -> None:
        torch.ops.torch_mlu.fused_lamb(
            _flag(given), *given, 0.01, 0.9, 0.99, 1e-6, step, 1, 0.1 * decay, averaging, 1, _flag(given) + float(norm),
            limit, bool(nvlamb),
        )  # fmt: skip

    def reference(given: list[Any], norm: int, limit: int, nvlamb: int, **settings: Any) -> None:
        for grad, param, m, v in zip(*given, strict=True):
            direction, weight, length = lamb64(grad, param, m, v, clip=max(1.0, norm / limit), **settings)
            ratio = weight / length if (nvlamb or settings["decay"]) and weight and length else 1.0
            param.sub_(0.01 * ratio * direction)

    steps(device, call, reference, norm=20, limit=20, nvlamb=1, averaging=1, step=5, decay=1)


def test_fused_sgd(device: Device) -> None:
    def call(given: list[Any], nesterov: int, first: int) -> None:
        none, flags = [None] * len(given[0]), (bool(nesterov), bool(first))
        torch.ops.torch_mlu.fused_sgd(_flag(given), *given, none, 0.1, 0.9, 0.2, 0.01, *flags, False, 1.0)

    steps(device, call, sgd64, lists=3, nesterov=1, first=1)


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
