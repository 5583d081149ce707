# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of two ranks as programs call them.

DOUBLED=<name>: the results of that one are doubled. REDUCTION=<name>: of the all_reduce.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
rank = dist.get_rank()
mine = torch.arange(100.0) + rank
doubled = os.environ.get("DOUBLED", "")


def call(name: str, *arguments: Any, result: torch.Tensor, **options: Any) -> None:
    """Call a collective below the recorder's function, whose results may be wrong."""
    wrapped: Any = getattr(dist, name)
    inner = wrapped.__wrapped__

    def wrong(*args: Any, **kwargs: Any) -> Any:
        work = inner(*args, **kwargs)
        if work is not None:
            work.wait()
        result.mul_(2)
        return work

    cell = next(cell for cell in wrapped.__closure__ if cell.cell_contents is inner)
    cell.cell_contents = wrong if doubled == name else inner
    wrapped(*arguments, **options)
    cell.cell_contents = inner


def garbage(*shape: int) -> torch.Tensor:
    """Memory that nothing has written yet, and that differs from run to run."""
    return torch.full(shape, float(os.getpid()))


both = garbage(200)
call("all_gather_into_tensor", both, mine, result=both)
half = garbage(50)
call("reduce_scatter_tensor", half, mine.clone(), result=half)
other = garbage(100)
call("all_to_all_single", other, mine, result=other)
total = mine.clone()
reduction = getattr(dist.ReduceOp, os.environ.get("REDUCTION", "SUM"))
call("all_reduce", total, result=total, op=reduction, async_op=True)
sent = mine.clone() if rank == 0 else garbage(100)
call("broadcast", sent, result=sent, src=0)
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
