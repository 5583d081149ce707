# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn


@dataclass
class TrainConfig:
    lr: float = 0.1
    steps: int = 5
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    hidden: list[int] = field(default_factory=lambda: [8, 8])


def build(config: TrainConfig) -> nn.Module:
    layers: list[nn.Module] = []
    width = 3
    for hidden in config.hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, 1)).to(config.device)


def batch(n: int = 8, device: str | torch.device = "cpu") -> torch.Tensor:
    return torch.randn(n, 3).to(device)


def main(config: TrainConfig = TrainConfig()) -> None:
    torch.manual_seed(31)
    model = build(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    for step in range(config.steps):
        x = batch(device=config.device)
        loss = (model(x).squeeze(-1) - x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step} {loss.item():.6f}")


if __name__ == "__main__":
    main()
