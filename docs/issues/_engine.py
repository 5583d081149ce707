# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rank, one weight, gradient of one: what the programs of this folder train."""

import importlib
import os

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

# DeepSpeed refuses fp16 on processors without instructions for it; torch computes it on all.
get_accelerator().is_fp16_supported = lambda: True
# No program needs the collectives' op, whose build takes a minute.
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")


def engine(make, model=None, **config):
    """An engine on the CPU, with the optimizer that the function makes of the parameters, or that the config names."""
    if model is None:
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.ones_(model.weight)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, **config}
    made = make(model.parameters()) if make else None
    return deepspeed.initialize(model=model, optimizer=made, config=config)[0]


def step(trained):
    """Train one step with a gradient of one; returns how much the weight changed."""
    before = trained.module.weight.detach().float().clone()
    inputs = torch.ones(1, 1, dtype=trained.module.weight.dtype)
    trained.backward(trained(inputs).sum())
    trained.step()
    return (before - trained.module.weight.detach().float()).item()
