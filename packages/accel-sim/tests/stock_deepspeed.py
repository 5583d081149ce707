# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank that trains with stock DeepSpeed's own accelerator and prints its losses beside plain PyTorch's on the CPU."""

import json
import os
import sys

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

from accel_testkit.engine import model

STEPS = 8


def plain(rank: int, size: int) -> list[float]:
    module, losses = model.make(), []
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(STEPS):
        for other, part in enumerate(model.batch(step).chunk(size)):
            loss = module(part)
            (loss / size).backward()
            if other == rank:
                losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def trained(stage: int, rank: int, size: int) -> list[float]:
    config = {
        "train_micro_batch_size_per_gpu": model.BATCH // size,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.01, "torch_adam": True}},
    }
    module, losses = model.make(), []
    engine, *_ = deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)
    for step in range(STEPS):
        loss = engine(model.batch(step).chunk(size)[rank].to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name(), verbose=False)
    results = {"plain": plain(rank, size)}
    results |= {f"stage {stage}": trained(stage, rank, size) for stage in range(4)}
    if rank == 0:
        kind = type(get_accelerator())
        found = {"accelerator": f"{kind.__module__}.{kind.__name__}", "losses": results}
        sys.stdout.write(json.dumps(found) + "\n")
    torch.distributed.destroy_process_group()


main()
