# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A tiny causal transformer and its batches, with the same numbers on every machine."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

BATCH, LENGTH = 8, 16
VOCABULARY, _WIDTH, _HEADS, _LAYERS = 61, 32, 4, 2


class Block(torch.nn.Module):
    """Attention written out, so that every device adds up in the same order, then a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(_WIDTH), torch.nn.LayerNorm(_WIDTH)
        self.qkv, self.out = torch.nn.Linear(_WIDTH, 3 * _WIDTH), torch.nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = torch.nn.Linear(_WIDTH, 4 * _WIDTH), torch.nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, length, width), and so the result."""
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        # By tanh: torch_npu computes no other gelu, whatever it is asked for.
        up = functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        down: torch.Tensor = self.down(up)
        return x + down


class Transformer(torch.nn.Module):
    """Predicts the next symbol; `forward` gives the mean cross entropy in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, _WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(_LAYERS))
        self.head = torch.nn.Linear(_WIDTH, VOCABULARY, bias=False)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """symbols: (batch, length + 1) int64."""
        x = self.embedding(symbols[:, :-1])
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).float().flatten(0, 1), symbols[:, 1:].flatten())


def make() -> Transformer:
    """Return a new model on the CPU in float32, with the same weights at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        return Transformer()


def batch(step: int) -> torch.Tensor:
    """Return the symbols (8, 17) of a step, on the CPU: periodic sequences, which the model can learn."""
    generator = torch.Generator().manual_seed(500 + step)
    start = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
    stride = torch.randint(1, 3, (BATCH, 1), generator=generator)
    return (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY
