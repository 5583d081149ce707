# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train with DeepSpeed on two ranks: zero.py PROGRAM STAGE. Prints the losses.

In step 1, with LOST_GRADIENT rank 1 sends zeros, and with DOUBLED_GRADIENT it receives twice the sum.
"""

import os
import sys
from typing import Any

import deepspeed
import faults
import models
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch.utils._pytree import tree_leaves

device = get_accelerator().device_name()
faults.plant(device)
deepspeed.init_distributed()
program, stage = sys.argv[-2:]
torch.manual_seed(int(os.environ.get("INITIAL_SEED", "0")))
model = models.PROGRAMS[program]()
torch.manual_seed(1)
epsilon = 1e-8 if device == "cpu" else float(os.environ.get("OPTIMIZER_FAULT", "1e-8"))
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "eps": epsilon}},
        "zero_optimization": {"stage": int(stage)},
    },
)


def spoil_gradients(name: str, change: float) -> None:
    """Replace what the recorder has wrapped: 0: what this rank sends is lost, else what it receives is multiplied."""
    wrapped: Any = getattr(dist, name)
    inner = wrapped.__wrapped__

    def wrong(*args: Any, **kwargs: Any) -> Any:
        large = [
            value for value in tree_leaves([args, kwargs])
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 400
        ]  # fmt: skip
        if models.step != 1 or not large:
            return inner(*args, **kwargs)
        if not change:
            for value in large:
                value.zero_()
            return inner(*args, **kwargs)
        work = inner(*args, **kwargs)
        if work is not None:
            work.wait()
        large[0].mul_(change)
        return work

    next(cell for cell in wrapped.__closure__ if cell.cell_contents is inner).cell_contents = wrong


rank = dist.get_rank()
if rank == 1 and device != "cpu":
    for variable, change in (("LOST_GRADIENT", 0.0), ("DOUBLED_GRADIENT", 2.0)):
        for function in ("all_reduce", "reduce", "reduce_scatter_tensor") if os.environ.get(variable) else ():
            spoil_gradients(function, change)
for models.step in range(3):
    loss = models.loss(program, engine, engine.device, slice(2 * rank, 2 * rank + 2))
    engine.backward(loss)
    engine.step()
    sys.stdout.write(f"{loss.item():.6f}\n")
