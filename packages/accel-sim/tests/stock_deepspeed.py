# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank that trains with stock DeepSpeed's own accelerator and prints its losses beside plain PyTorch's on the CPU."""

from __future__ import annotations

import copy
import json
import os
import sys

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch import nn

STEPS, LENGTH, WORDS, WIDTH = 8, 16, 61, 32


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.query, self.out, self.head = (
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WORDS),
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(words[:, :-1])
        parts = [
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.query(self.norm(hidden)).chunk(3, -1)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)
        logits = self.head(nn.functional.gelu(hidden + self.out(mixed)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randint(0, WORDS, (4, LENGTH + 1), generator=generator)


def plain(model: nn.Module, rank: int, size: int) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01), []
    for step in range(STEPS):
        for other in range(size):
            loss = model(batch(step, other))
            (loss / size).backward()
            if other == rank:
                losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def trained(model: nn.Module, stage: int, rank: int) -> list[float]:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.01, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses = []
    for step in range(STEPS):
        loss = engine(batch(step, rank).to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name(), verbose=False)
    torch.manual_seed(0)
    model = Transformer()
    results = {"plain": plain(copy.deepcopy(model), rank, size)}
    for stage in range(4):
        results[f"stage {stage}"] = trained(copy.deepcopy(model), stage, rank)
    if rank == 0:
        kind = type(get_accelerator())
        sys.stdout.write(
            json.dumps({"accelerator": f"{kind.__module__}.{kind.__name__}", "losses": results}) + "\n"
        )
    torch.distributed.destroy_process_group()


main()
