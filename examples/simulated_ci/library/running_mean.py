# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A library whose classes take `device=`, as in torch.nn."""

from __future__ import annotations

import torch
from torch import nn


class RunningMean(nn.Module):
    """The mean and variance of all rows that it has seen."""

    def __init__(self, width: int, *, device: torch.device | str | None = None) -> None:
        super().__init__()
        for name in ("mean", "squares"):
            self.register_buffer(name, torch.zeros(width, device=device))
        self.register_buffer("seen", torch.zeros((), device=device))

    def update(self, rows: torch.Tensor) -> None:
        """Take more rows into account (Welford's method, a batch at a time)."""
        total = self.seen + len(rows)
        change = rows.mean(0) - self.mean
        self.squares += rows.var(0, unbiased=False) * len(rows)
        self.squares += change.square() * (self.seen * len(rows) / total)
        self.mean += change * (len(rows) / total)
        self.seen.copy_(total)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scale rows to mean 0 and variance 1."""
        deviation = (self.squares / self.seen).sqrt().clamp(min=1e-9)
        return ((rows - self.mean) / deviation).to(rows.dtype)
