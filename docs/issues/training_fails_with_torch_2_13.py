# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two ranks at ZeRO 1: the optimizer's step fails with torch 2.13, and works under `torch.no_grad()`."""

import contextlib
import os

import torch
from _engine import engine


def rank(number, context, port):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
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
    for port, context in (("29611", contextlib.nullcontext), ("29612", torch.no_grad)):
        torch.multiprocessing.spawn(rank, (context, port), nprocs=2)
