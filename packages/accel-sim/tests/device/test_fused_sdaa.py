# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.sdaa against float64."""

from typing import Any

import torch

from accel_ops.reference import adam, step_lists

from .conftest import Device
from .float64 import agrees, cases, changes, optimizer_lists, sgd64

_RATES: Any = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def test_fused_adam(device: Device) -> None:
    for random, dtype in cases(6):
        decoupled, corrects, step = random.number(0, 1), random.number(0, 1), random.number(1, 5)

        def call(given: list[Any], s: Any = (decoupled, step, corrects)) -> None:
            torch.ops.sdaa.fused_adam(*given, [], 0.9, 0.99, 1e-6, 0.01, 0.1, *s)

        def reference(given: list[Any], s: Any = (decoupled, step, corrects)) -> None:
            step_lists(adam, given, **_RATES, decoupled=bool(s[0]), step=s[1], bias_correction=bool(s[2]))

        changes(device, call, reference, optimizer_lists(random, dtype), in_out=3)


def test_fused_sgd(device: Device) -> None:
    for random, dtype in cases(6):
        nesterov, first = bool(random.number(0, 1)), bool(random.number(0, 1))

        def call(given: list[Any], s: Any = (nesterov, first)) -> None:
            torch.ops.sdaa.fused_sgd(*given, 0.1, 0.9, 0.01, 0.2, *s)

        def reference(given: list[Any], s: Any = (nesterov, first)) -> None:
            for each in zip(*given, strict=True):
                sgd64(*each, lr=0.01, momentum=0.9, dampening=0.2, decay=0.1, nesterov=s[0], first=s[1])

        changes(device, call, reference, optimizer_lists(random, dtype, 3), in_out=2)


def test_swiglu(device: Device) -> None:
    def reference(x: Any, _length: int, _heads: int, size: int) -> Any:
        gate, value = x[0, ..., :size], x[0, ..., size:]
        return gate / (1 + torch.exp(-gate)) * value

    for random, dtype in cases(6):
        length, heads, size = random.shape(3)
        x = random.tensor((1, length, heads, 2 * size), dtype).contiguous()
        agrees(device, torch.ops.sdaa.swiglu, reference, x, length, heads, size)
