# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A training script for CUDA, as `accel port` meets it in docs/port.md."""

import os

import torch
from torch.cuda.amp import GradScaler, autocast


def build():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    model = torch.nn.Linear(8, 1).cuda()
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler()
    for batch in batches:
        with autocast(dtype=torch.float16):
            loss = model(batch.cuda(non_blocking=True)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.cuda.synchronize()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    print(torch.cuda.get_device_capability())
    train(build(), torch.ones(4, 2, 8))
