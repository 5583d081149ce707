# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small decoder-only transformer over bytes (rotary positions, tied embedding), and the text that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 256


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the model; `context` is the number of bytes it sees at once."""

    context: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0


class Attention(nn.Module):
    """Causal self-attention over (batch, time, width), positions as rotations of queries and keys."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of features of (batch, head, time, feature) by its position's angle, exact in float32."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).type_as(x)


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to the residual stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), cos, sin))
        return x + self.dropout(self.down(F.relu(self.up(self.norm2(x))).square()))


class ByteGPT(nn.Module):
    """Logits of the next byte, (batch, time, 256), or the mean loss in nats when targets are given."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(VOCABULARY, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        half = shape.width // shape.heads // 2
        angle = torch.arange(shape.context)[:, None] * (1024.0 ** -(torch.arange(half) / half))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.apply(self._initialise)

        self.size = sum(p.numel() for p in self.parameters())  # under ZeRO stage 3 a rank holds a part only

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self.shape.width**-0.5)
        elif isinstance(module, nn.Linear) and module is not self.head:
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if isinstance(module, Block):  # children come first: a block starts as the identity
            nn.init.zeros_(module.attention.out.weight)
            nn.init.zeros_(module.down.weight)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x)).float()
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def generate(
    model: Any, prompt: bytes, count: int, *, context: int, device: str, seed: int, temperature: float = 0.7
) -> bytes:
    """The non-empty prompt and `count` bytes after it; every rank must call this, and gets the same bytes."""
    text = bytearray(prompt)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        tokens = torch.tensor([list(text[-context:])], device=device)
        logits = torch.tensor(model(tokens)[0, -1].tolist())  # sampled on the host, alike on every device
        text.append(int(torch.multinomial((logits / temperature).softmax(0), 1, generator=generator)))
    return bytes(text)


def printable(text: bytes) -> str:
    """The text as a terminal may show it: an untrained model writes control characters as well."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for c in text.decode(errors="replace")
    )
