# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train the language model with DeepSpeed: zero.py STAGE. LOST_GRADIENT: rank 1 sends zeros in step 1."""

from __future__ import annotations

import os
import sys
from typing import Any

import deepspeed
import faults
import models
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn
from torch.utils._pytree import tree_leaves

device = get_accelerator().device_name()
faults.plant(device)
deepspeed.init_distributed()
torch.manual_seed(0)
model = models.LanguageModel()
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": int(sys.argv[-1])},
    },
)


def lose_gradients(name: str) -> None:
    """Replace what the recorder has wrapped, as a backend does that loses what a rank sends."""
    wrapped: Any = getattr(dist, name)
    inner = wrapped.__wrapped__

    def lossy(*args: Any, **kwargs: Any) -> Any:
        if engine.global_steps == 1:
            for value in tree_leaves([args, kwargs]):
                if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1000:
                    value.zero_()
        return inner(*args, **kwargs)

    next(cell for cell in wrapped.__closure__ if cell.cell_contents is inner).cell_contents = lossy


rank = dist.get_rank()
if os.environ.get("LOST_GRADIENT") and rank == 1 and device != "cpu":
    for function in ("all_reduce", "reduce", "reduce_scatter_tensor"):
        lose_gradients(function)
for _ in range(3):
    ids = torch.randint(models.WORDS, (4, 17))[2 * rank : 2 * rank + 2].to(engine.device)
    loss = nn.functional.cross_entropy(engine(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    engine.backward(loss)
    engine.step()
