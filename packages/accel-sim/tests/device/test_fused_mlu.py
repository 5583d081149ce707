# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.torch_mlu against float64."""

import math
from typing import Any

import torch

from accel_ops.reference import adam, step_lists

from .conftest import Device
from .float64 import agrees, cases, changes, lamb64, optimizer_lists, sgd64

_RATES: Any = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def test_fused_adam(device: Device) -> None:
    for random, dtype in cases(6):
        mode, corrects, step = random.number(0, 1), random.number(0, 1), random.number(1, 5)
        flag = torch.zeros(1, dtype=torch.int32)

        def call(given: list[Any], settings: Any = (step, mode, corrects)) -> None:
            assert torch.ops.torch_mlu.fused_adam(*given, 0.01, 0.9, 0.99, 1e-6, *settings, 0.1)

        def reference(given: list[Any], s: Any = (step, mode, corrects)) -> None:
            modes = {"decoupled": s[1] == 1, "step": s[0], "bias_correction": bool(s[2])}
            step_lists(adam, given[1:], **_RATES, **modes)

        changes(device, call, reference, [flag, *optimizer_lists(random, dtype)], in_out=3)


def test_fused_lamb(device: Device) -> None:
    for random, dtype in cases(6):
        nvlamb, averaging, step = bool(random.number(0, 1)), random.number(0, 1), random.number(1, 5)
        decay, limit = 0.1 * random.number(0, 1), random.number(1, 20)
        lists = optimizer_lists(random, dtype)
        norm = torch.tensor([float(random.number(1, 20))])

        def call(given: list[Any], s: Any = (step, decay, averaging, limit, nvlamb)) -> None:
            torch.ops.torch_mlu.fused_lamb(
                given[0].int(), *given[1:], 0.01, 0.9, 0.99, 1e-6, s[0], 1, s[1], s[2], 1, given[0], s[3], s[4],
            )  # fmt: skip

        def reference(given: list[Any], s: Any = (step, decay, averaging, limit, nvlamb)) -> None:
            o = {"clip": max(1.0, float(given[0]) / s[3]), "beta1": 0.9, "beta2": 0.99, "averaging": s[2],
                 "first": 1 - 0.9 ** s[0], "second": 1 - 0.99 ** s[0], "eps": 1e-6, "decay": s[1]}  # fmt: skip
            for grad, param, m, v in zip(*given[1:], strict=True):
                direction, weight, length = lamb64(grad, param, m, v, o=o)
                ratio = weight / length if (s[4] or s[1]) and weight and length else 1.0
                param.sub_(0.01 * ratio * direction)

        changes(device, call, reference, [norm, *lists], in_out=3)


def test_fused_sgd(device: Device) -> None:
    for random, dtype in cases(6):
        first, nesterov = bool(random.number(0, 1)), bool(random.number(0, 1))
        lists = optimizer_lists(random, dtype, 3)

        def call(given: list[Any], s: Any = (nesterov, first)) -> None:
            flag = torch.zeros(1, dtype=torch.int32, device=given[0][0].device)
            none = [None] * len(given[0])
            torch.ops.torch_mlu.fused_sgd(flag, *given, none, 0.1, 0.9, 0.2, 0.01, *s, False, 1.0)

        def reference(given: list[Any], s: Any = (nesterov, first)) -> None:
            for each in zip(*given, strict=True):
                sgd64(*each, lr=0.01, momentum=0.9, dampening=0.2, decay=0.1, nesterov=s[0], first=s[1])

        changes(device, call, reference, lists, in_out=2)


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
