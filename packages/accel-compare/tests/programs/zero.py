# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train with DeepSpeed on two ranks: zero.py STAGE. Prints the losses.

With LOST_GRADIENT rank 1 sends zeros in step 1.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import deepspeed
import faults
import models
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch.utils._pytree import tree_leaves

device = get_accelerator().device_name()
deepspeed.init_distributed()
torch.manual_seed(int(os.environ.get("INITIAL_SEED", "0")))
model = models.LanguageModel()
torch.manual_seed(1)
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": int(sys.argv[-1])},
    },
)


def lose_gradients(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Send zeros for the gradients of step 1."""
    for value in tree_leaves([args, kwargs]) if engine.global_steps == 1 else ():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 400:
            value.zero_()
    return inner(*args, **kwargs)


rank = dist.get_rank()
if rank == 1 and device != "cpu" and os.environ.get("LOST_GRADIENT"):
    for function in ("all_reduce", "reduce", "reduce_scatter_tensor"):
        faults.replace_collective(function, lose_gradients)
for _ in range(3):
    loss = models.loss(engine, engine.device, slice(2 * rank, 2 * rank + 2))
    engine.backward(loss)
    engine.step()
    sys.stdout.write(f"{loss.item():.6f}\n")
