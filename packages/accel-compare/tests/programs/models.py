# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The model of the programs that are compared, and the loss of a batch."""

import torch
from torch import nn

WORDS = 50


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.out(
            (nn.functional.dropout(weights, 0.1, self.training) @ value).transpose(1, 2).flatten(2)
        )


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x=self.norm1(x), future=future)
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Token IDs (batch, length) to logits (batch, length, WORDS)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        for block in self.blocks:
            x = block(x, future)
        return self.head(x)


def loss(model: nn.Module, device: str | torch.device, rows: slice = slice(None)) -> torch.Tensor:
    """Draw a batch of four, and return the loss of some of its rows."""
    ids = torch.randint(WORDS, (4, 17))[rows].to(device)
    logits = model(ids[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, -2), ids[:, 1:].flatten())
