# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two ranks at ZeRO 1: the optimizer's step fails with torch 2.13, and works under `torch.no_grad()`."""

import contextlib
import os
import tempfile

import deepspeed
import torch
from _engine import engine


def rank(number, context, folder):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2")
    deepspeed.init_distributed("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=2)
    trained = engine(torch.optim.AdamW, torch.nn.Linear(4, 4), zero_optimization={"stage": 1})
    trained.backward(trained(torch.ones(1, 4)).sum())
    said = "no error"
    try:
        with context():
            trained.step()
    except RuntimeError as error:
        said = str(error).partition(" and ")[0]
    if number == 0:
        print(f"{context.__name__}: {said}", flush=True)


if __name__ == "__main__":
    for context in (contextlib.nullcontext, torch.no_grad):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(rank, (context, folder), nprocs=2)
