# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The same training in plain PyTorch on the CPU: float32 master weights, gradients clipped, AdamW."""

from __future__ import annotations

import torch

from accel_testkit.engine import model
from accel_testkit.engine.configurations import CLIPPING, LEARNING_RATE, SCALE, STEPS, Configuration

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def losses(configuration: Configuration) -> list[float]:
    """Mean loss of every step. Ranks, stages, offload and checkpoints make no difference to it."""
    dtype = _TYPES[configuration.dtype]
    scale = SCALE if configuration.dtype == "fp16" else 1
    module = model.make().to(dtype)
    masters = [parameter.detach().float().requires_grad_() for parameter in model.make().parameters()]
    optimizer = torch.optim.AdamW(masters, lr=LEARNING_RATE, weight_decay=0.01)
    found = []
    for step in range(STEPS):
        parts = model.batch(step).chunk(configuration.accumulate)
        sums = [torch.zeros_like(master) for master in masters]
        values = []
        for part in parts:
            module.zero_grad()
            loss = module(part)
            values.append(loss.item())
            (loss * scale / len(parts)).backward()
            for total, parameter in zip(sums, module.parameters(), strict=True):
                assert parameter.grad is not None
                total += parameter.grad.float() / scale
        for master, total in zip(masters, sums, strict=True):
            master.grad = total
        torch.nn.utils.clip_grad_norm_(masters, CLIPPING)
        optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(module.parameters(), masters, strict=True):
                parameter.copy_(master)
        found.append(sum(values) / len(values))
    return found
