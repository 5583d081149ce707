# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of two ranks as programs call them.

DOUBLED=<name>: the results of that one are doubled. REDUCTION=<name>: of the all_reduce.
"""

import os
from collections.abc import Callable
from typing import Any

import faults
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
rank = dist.get_rank()
mine = torch.arange(100.0) + rank


def doubled(inner: Callable[..., Any], result: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    work = inner(result, *args, **kwargs)
    if work is not None:
        work.wait()
    result.mul_(2)
    return work


if name := os.environ.get("DOUBLED"):
    faults.replace_collective(name, doubled)


def garbage(*shape: int) -> torch.Tensor:
    """Memory that nothing has written yet, and that differs from run to run."""
    return torch.full(shape, float(os.getpid()))


dist.all_gather_into_tensor(garbage(200), mine)
dist.reduce_scatter_tensor(garbage(50), mine.clone())
dist.all_to_all_single(garbage(100), mine)
reduction = getattr(dist.ReduceOp, os.environ.get("REDUCTION", "SUM"))
dist.all_reduce(mine.clone(), op=reduction, async_op=True)
sent = mine.clone() if rank == 0 else garbage(100)
dist.broadcast(sent, src=0)
nn.Linear(100, 1)(sent)
objects: list[Any] = [None, None]
dist.all_gather_object(objects, {"pid": os.getpid()})
first = dist.new_group([0])
dist.all_reduce(mine.clone(), group=first)
if rank == 0:
    dist.send(mine, 1)
else:
    dist.recv(garbage(100), 0)
with dist._coalescing_manager():
    dist.all_reduce(mine.clone())
dist.barrier()
dist.destroy_process_group()
