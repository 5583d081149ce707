# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small training at ZeRO 2 with the optimizer on the host, under any launcher: six steps of the same eight rows.

python train.py FILE: rank 0 writes its losses, accelerator and backend there.
"""

import json
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

ROWS, STEPS = 8, 6


def main(out: Path) -> None:
    deepspeed.init_distributed()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        *(layer for _ in range(5) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh()))
    )
    rows, wanted = torch.randn(STEPS, ROWS, 64), torch.randn(STEPS, ROWS, 64)
    config = {
        "train_batch_size": ROWS,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    mine, losses = slice(rank * ROWS // ranks, (rank + 1) * ROWS // ranks), []
    for step in range(STEPS):
        inputs, targets = (each[step, mine].to(engine.device) for each in (rows, wanted))
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        losses.append(mean.item())
    if rank == 0:
        accelerator = type(get_accelerator()).__module__.partition(".")[0]
        report = {"losses": losses, "accelerator": accelerator, "backend": dist.get_backend(), "ranks": ranks}
        out.write_text(json.dumps(report), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(next(word for word in reversed(sys.argv) if word.endswith(".json"))))
