# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The model of the training checks: small, with the same numbers on every machine."""

from __future__ import annotations

import torch

STEPS = 6
LEARNING_RATE = 1e-2
#: Largest norm of all gradients together: ranks have to agree on it.
CLIPPING = 1.0
_BATCH, _INPUTS, _HIDDEN, _OUTPUTS = 8, 12, 24, 3


def make() -> torch.nn.Module:
    """A new model on the CPU, with the same weights at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(97)
        return torch.nn.Sequential(
            torch.nn.Linear(_INPUTS, _HIDDEN),
            torch.nn.LayerNorm(_HIDDEN),
            torch.nn.GELU(),
            torch.nn.Linear(_HIDDEN, _OUTPUTS),
        )


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (8, 12) and targets (8, 3) of a step, on the CPU."""
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.rand(_BATCH, _INPUTS, generator=generator)
    return inputs, torch.stack([inputs.sum(1), inputs[:, 0], inputs.prod(1)], dim=1)


def loss(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared error, computed in float32 whatever the model's type."""
    return torch.nn.functional.mse_loss(model(inputs).float(), targets.float())


def train_plain() -> list[float]:
    """Losses of plain PyTorch on the CPU: AdamW, gradients clipped, float32."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        value = loss(model, *batch(step))
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPING)
        optimizer.step()
    return losses
