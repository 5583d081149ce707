# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = os.environ.get("MASTER_PORT", "12355")
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size)


def worker(rank, world_size):
    setup(rank, world_size)
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        device = torch.device("cuda", rank)
    else:
        device = torch.device("cpu")
    model = nn.Linear(10, 5).to(device)
    if torch.cuda.is_available():
        ddp_model = DistributedDataParallel(model, device_ids=[rank])
    else:
        ddp_model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(4):
        inputs = torch.randn(20, 10, generator=generator).to(device)
        labels = torch.randn(20, 5, generator=generator).to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp_model(inputs), labels)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print("step %d loss %.6f" % (step, loss.item()))
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    world_size = n_gpus if n_gpus >= 2 else 2
    mp.spawn(worker, args=(world_size,), nprocs=world_size, join=True)
