# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What gloo offers to a program, called on the default group: each call's result or the type of its error."""

import dataclasses
import gc
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


def all_of_them(rank: int, ranks: int, problem: str = "") -> dict[str, Any]:
    """Return {call: its result, or the name of its error}. problem: why this rank cannot share memory."""
    calls = {name.strip("_"): call for name, call in globals().items() if name.startswith("_call_")}
    found = {name: _outcome(call, rank, ranks) for name, call in calls.items()}
    if problem:
        group: Any = dist.group.WORLD
        assert group.reason.endswith(problem), group.reason
    return found


def break_memory(problem: str) -> None:
    """Let the next group find a problem on this rank."""
    from accel_cpu.shm import rendezvous

    facts = rendezvous._facts
    rendezvous._facts = lambda segment: dataclasses.replace(facts(segment), problem=problem)


def without_memory(rank: int, ranks: int, path: str) -> dict[str, Any]:
    """The same in a default group of which one rank cannot share memory."""
    dist.destroy_process_group()
    if rank == 1:
        break_memory("planted")
    dist.init_process_group("shm", init_method=f"file://{path}", rank=rank, world_size=ranks)
    return all_of_them(rank, ranks, "planted")


#: Collectives on a tensor, by their names.
MOVES: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "broadcast": lambda mine, ranks: dist.broadcast(mine, ranks - 1),
    "all_reduce": lambda mine, ranks: dist.all_reduce(mine),
    "gather": lambda mine, ranks: dist.gather(mine, None if dist.get_rank() else [mine.clone()] * ranks, 0),
    "all_gather": lambda mine, ranks: dist.all_gather([mine.clone() for _ in range(ranks)], mine),
    "all_gather_into_tensor": lambda mine, ranks: dist.all_gather_into_tensor(mine.repeat(ranks), mine),
    "all_to_all_single": lambda mine, ranks: dist.all_to_all_single(mine.clone(), mine),
}


def kept(rank: int, ranks: int) -> list[str]:
    """Return the calls that leave tensors in reference cycles, where they stay until Python's collector runs."""
    found = []
    for name, dtype in itertools.product(MOVES, (torch.float32, torch.int32, torch.float64)):
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        MOVES[name](torch.ones(4, dtype=dtype), ranks)
        gc.collect()
        gc.set_debug(0)
        if any(isinstance(item, torch.Tensor) for item in gc.garbage):
            found.append(f"{name} {dtype}")
        gc.garbage.clear()
    return found


def _outcome(call: Callable[[int, int], Any], rank: int, ranks: int) -> Any:
    try:
        return repr(_plain(call(rank, ranks)))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        return type(error)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(torch.complex128 if value.is_complex() else torch.float64).tolist()
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _mine(rank: int, count: int = 4) -> torch.Tensor:
    # 1 and 3: all sums, products and averages are exact.
    return torch.full((count,), 2.0 * rank + 1)


def _call_objects(rank: int, ranks: int) -> Any:
    said, received, given = [None] * ranks, [f"from {rank}", rank], [None]
    dist.all_gather_object(said, {"rank": rank})
    dist.broadcast_object_list(received, 1)
    gathered = [None] * ranks if rank == 0 else None
    dist.gather_object(("mine", rank), gathered, 0)
    dist.scatter_object_list(given, list(range(ranks)) if rank == 0 else None, 0)
    return [said, received, gathered, given]


def _call_barriers(rank: int, ranks: int) -> Any:
    dist.barrier()
    dist.monitored_barrier()
    dist.monitored_barrier(dist.group.WORLD, timedelta(seconds=60), wait_all_ranks=True)
    work = dist.barrier(async_op=True)
    return work.wait()


def _call_late_rank_of_a_monitored_barrier(rank: int, ranks: int) -> Any:
    group = dist.new_group()  # which cannot be used any more
    if rank == 0:
        dist.monitored_barrier(group, timedelta(milliseconds=50))  # raises: nobody else comes


def _call_coalesced(rank: int, ranks: int) -> Any:
    together: Any = dist._coalescing_manager  # type: ignore[attr-defined]
    tensors = [_mine(rank), _mine(rank, 3)]
    with together(device=torch.device("cpu")):
        for tensor in tensors:
            dist.all_reduce(tensor)
    return tensors


def _call_coalesced_gathers(rank: int, ranks: int) -> Any:
    together: Any = dist._coalescing_manager  # type: ignore[attr-defined]
    results = [torch.zeros(4 * ranks), torch.zeros(3 * ranks)]
    with together(device=torch.device("cpu"), async_ops=True) as waiting:
        for result in results:
            dist.all_gather_into_tensor(result, _mine(rank, result.numel() // ranks))
    waiting.wait()
    return results


def _call_premultiplied_sum(rank: int, ranks: int) -> Any:
    tensor = _mine(rank)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(2.0))  # type: ignore[attr-defined]
    return tensor


def _call_sparse(rank: int, ranks: int) -> Any:
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank]]), torch.ones(1), (2,))
    dist.all_reduce(tensor)
    return tensor.to_dense()


def _call_sub_groups(rank: int, ranks: int) -> Any:
    pair, alone = dist.new_group(list(range(ranks))), [dist.new_group([i]) for i in range(ranks)]
    both, own = _mine(rank), _mine(rank)
    dist.all_reduce(both, group=pair)
    dist.all_reduce(own, op=dist.ReduceOp.AVG, group=alone[rank])
    local = dist.new_group(list(range(ranks)), use_local_synchronization=True, timeout=timedelta(seconds=60))
    dist.barrier(group=local)
    mine, groups = dist.new_subgroups(1)
    host = dist.new_group(backend="gloo")
    dist.all_reduce(both, group=host)
    return [both, own, dist.get_rank(mine), len(groups), dist.get_backend(host)]


def _call_mesh(rank: int, ranks: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("outer", "inner"))
    whole = torch.arange(8.0).reshape(4, 2)
    sharded = distribute_tensor(whole, mesh["inner"], [Shard(0)])
    return [
        sharded.to_local(),
        sharded.redistribute(mesh["inner"], [Replicate()]).to_local(),
        sharded.sum().full_tensor(),
    ]


def _call_differentiable(rank: int, ranks: int) -> Any:
    import torch.distributed.nn as nn

    tensor = _mine(rank).requires_grad_()
    sent = nn.all_to_all([torch.zeros(2) for _ in range(ranks)], list(tensor.split(2)))
    total = nn.all_reduce(tensor)
    (total.sum() + sum(part.sum() for part in sent)).backward()
    return [total.detach(), tensor.grad]
