# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs of torch and DeepSpeed on a process group, and single calls: their losses and results."""

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


def _batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(8, 16, generator=generator)
    return inputs, inputs.sum(1, keepdim=True)


def _losses(rank: int, model: Any, optimizer: Any) -> list[float]:
    losses = []
    for step in range(4):
        inputs, wanted = _batch(rank, step)
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ddp(rank: int, ranks: int) -> list[float]:
    model = nn.parallel.DistributedDataParallel(_model())
    return _losses(rank, model, torch.optim.AdamW(model.parameters(), lr=1e-2))


def fsdp(rank: int, ranks: int) -> list[float]:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _losses(rank, model, torch.optim.AdamW(model.parameters(), lr=1e-2))


def functionals(rank: int, ranks: int) -> list[Any]:
    """torch's collectives that return a new tensor, which compiled programs use."""
    group = dist.group.WORLD
    mine = torch.arange(4.0) + rank
    found = [
        functional.all_reduce(mine, "sum", group),
        functional.all_gather_tensor(mine, 0, group),
        functional.reduce_scatter_tensor(mine, "sum", 0, group),
        functional.all_to_all_single(mine, None, None, group),
        functional.broadcast(mine, 0, group),
        *functional.all_reduce_coalesced([mine, mine * 2], "max", group),
    ]
    return [tensor.tolist() for tensor in found]


def handles(rank: int, ranks: int) -> list[float]:
    """Many asynchronous calls, waited for in another order, with synchronous ones between."""
    tensors = [torch.full((1000,), float(i + rank)) for i in range(40)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors[:20]]
    dist.all_reduce(tensors[20])
    works += [dist.all_reduce(tensor, async_op=True) for tensor in tensors[21:]]
    for work in reversed(works):
        work.wait()
    return [tensor[-1].item() for tensor in tensors]


def many_groups(rank: int, ranks: int, count: int) -> list[Any]:
    """Descriptors, mapped segments and reasons after making and destroying groups of some and of all ranks."""

    def used() -> tuple[int, int]:
        gc.collect()
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count("memfd:accel_shm_segment")

    reasons, before = set(), (0, 0)
    for index in range(count):
        members = list(range(ranks)) if index % 2 else [0, ranks - 1]
        group = dist.new_group(members)
        if rank in members:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [len(members)] * 3
            reasons.add(group.reason)
            dist.destroy_process_group(group)
        del group
        if index == 1:
            before = used()
    dist.barrier()
    until = time.monotonic() + 60  # a thread of gloo closes what belongs to it
    while any(now > was for now, was in zip(used(), before, strict=True)) and time.monotonic() < until:
        time.sleep(0.05)
    return [before, used(), sorted(reasons)]


def sequence_numbers(rank: int, ranks: int) -> list[int]:
    """Return what the default backend of the default group and of a new one counts."""
    groups: list[Any] = [dist.group.WORLD, dist.new_group()]
    return [group._get_sequence_number_for_group() for group in groups]


def again(rank: int, ranks: int, path: str) -> list[float]:
    """The default group is destroyed and made again."""
    found = []
    for turn in range(4):
        tensor = torch.full((2,), rank + 1.0)
        dist.all_reduce(tensor)
        found.append(tensor[0].item())
        dist.destroy_process_group()
        dist.init_process_group(
            "shm" if turn % 2 else "cpu:shm", init_method=f"file://{path}/{turn}", rank=rank, world_size=ranks
        )
    return found


def threads(rank: int, ranks: int) -> list[str]:
    """Names of the group's threads after synchronous calls, of which none needs one."""
    dist.all_reduce(torch.ones(1))
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("accel-shm")]


def inference(rank: int, ranks: int) -> list[object]:
    """DeepSpeed's inference functions."""
    from accel_cpu.comm_ops import ShareMemCommBuilder

    op = ShareMemCommBuilder().load()
    op.initialize(ranks, rank)
    mine = torch.full((2,), rank + 1.0)
    summed = op.inference_all_reduce(mine)
    assert mine.tolist() == [rank + 1.0] * 2
    op.inference_all_reduce_(mine)
    assert not hasattr(torch.ops.deepspeed, "inference_all_reduce_")
    return [summed.tolist(), mine.tolist(), op.vector_kernel_level()]
