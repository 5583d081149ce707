# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small model; with FAULT=1 one of its layers is a thousandth too large, as by a wrong kernel."""

import os

import torch


class LayerNorm(torch.nn.LayerNorm):
    """A layer whose kernel may be wrong."""

    fault = False

    def forward(self, hidden):
        return super().forward(hidden) * (1.001 if self.fault else 1.0)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = LayerNorm(32)
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, hidden):
        return hidden + self.linear(self.norm1(hidden))


class LanguageModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))

    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return hidden.square().mean()


torch.manual_seed(1)
model = LanguageModel()
model.blocks[1].norm1.fault = os.environ.get("FAULT") == "1"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    loss = model(torch.randn(4, 16, 32))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
