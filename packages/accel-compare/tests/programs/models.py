# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The three programs that are compared: a model of each, and the loss of a batch."""

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


class Images(nn.Module):
    """Images (batch, 3, 8, 8) to logits (batch, WORDS)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(128, WORDS),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


class Gated(nn.Module):
    """Vectors (batch, 24) to one number: gated layers between root mean squares, as of large language models."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(24, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.Linear(width, width) for _ in range(3)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for norm, (up, gate, down) in zip(self.norms, self.layers, strict=True):
            here = norm(x)
            x = x + down(nn.functional.silu(gate(here)) * up(here))
        return self.last(x)


PROGRAMS = {"language": LanguageModel, "images": Images, "gated": Gated}


def loss(
    program: str, model: nn.Module, device: str | torch.device, rows: slice = slice(None)
) -> torch.Tensor:
    """Draw a batch of four, and return the loss of some of its rows."""
    if program == "images":
        images, labels = torch.randn(4, 3, 8, 8, device=device)[rows], torch.randint(WORDS, (4,))[rows]
        return nn.functional.cross_entropy(model(images), labels.to(device))
    if program == "gated":
        x = torch.randn(4, 24)[rows].to(device)
        return nn.functional.mse_loss(model(x), x.sum(-1, keepdim=True))
    ids = torch.randint(WORDS, (4, 17))[rows].to(device)
    logits = model(ids[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, -2), ids[:, 1:].flatten())
