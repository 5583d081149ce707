# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Column and row of a tensor-parallel layer, on one rank: everything is on current_device()."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parameter import Parameter


def initialize():
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", init_method="env://")
    assert dist.get_backend() == "nccl"


class ColumnParallelLinear(torch.nn.Module):
    def __init__(self, input_size, output_size, master):
        super().__init__()
        world = dist.get_world_size()
        rank = dist.get_rank()
        rows = output_size // world
        self.weight = Parameter(
            torch.empty(rows, input_size, device=torch.cuda.current_device(), dtype=torch.float32)
        )
        with torch.no_grad():
            self.weight.copy_(master[rank * rows : (rank + 1) * rows])

    def forward(self, x):
        return F.linear(x, self.weight)


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def main():
    initialize()
    torch.manual_seed(5)
    device = torch.device(f"cuda:{torch.cuda.current_device()}")
    master = torch.randn(8, 4)
    x = torch.randn(6, 4).to(torch.cuda.current_device())
    layer = ColumnParallelLinear(4, 8, master)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    losses = torch.cuda.FloatTensor([0.0])
    for _ in range(3):
        partial = layer(x).sum(1)
        loss = (Reduce.apply(partial) - 1.0).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        if dist.get_rank() == 0:
            print(f"loss {loss.item():.6f}")
    counts = torch.tensor([1, 2], device=device)
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        print(losses.item() > 0, counts.tolist())
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
