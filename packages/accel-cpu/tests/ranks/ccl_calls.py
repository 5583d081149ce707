# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What ranks call on oneCCL, and what they got."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64,
    torch.int32, torch.int64, torch.int8, torch.uint8,
)  # fmt: skip


def _numbers(rank: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    """Small integers, of which no sum or product of a few rounds."""
    generator = torch.Generator().manual_seed(rank + 1)
    return torch.randint(1, 4, (size,), generator=generator).to(dtype)


def reductions(rank: int, ranks: int) -> int:
    """Each dtype and operation of all_reduce, reduce and reduce_scatter, with and without strides."""
    cases = 0
    for dtype in DTYPES:
        for operation in OPERATIONS:
            if operation == "AVG" and not dtype.is_floating_point:
                continue
            op, inputs = getattr(dist.ReduceOp, operation), [_numbers(r, dtype, 5000) for r in range(ranks)]
            stacked = torch.stack(inputs).double()
            expected = {
                "SUM": stacked.sum(0), "AVG": stacked.mean(0), "PRODUCT": stacked.prod(0),
                "MIN": stacked.amin(0), "MAX": stacked.amax(0),
            }[operation].to(dtype)  # fmt: skip
            mine = torch.zeros(10000, dtype=dtype)[::2]
            mine.copy_(inputs[rank])
            dist.all_reduce(mine, op=op)
            assert torch.equal(mine, expected), (dtype, operation)
            rooted = inputs[rank].clone()
            dist.reduce(rooted, 1, op=op)
            assert torch.equal(rooted, expected if rank == 1 else inputs[rank]), (dtype, operation)
            part = torch.empty(5000 // ranks, dtype=dtype)
            dist.reduce_scatter_tensor(part, inputs[rank].clone(), op=op)
            assert torch.equal(part, expected.view(ranks, -1)[rank]), (dtype, operation)
            cases += 1
    return cases


def movements(rank: int, ranks: int) -> None:
    """broadcast, gatherings, exchanges and what gloo does."""
    for dtype in (*DTYPES, torch.bool, torch.complex64):
        inputs = [_numbers(r, torch.int8, 6 * ranks).to(dtype) for r in range(ranks)]
        tensor = inputs[rank].clone()
        dist.broadcast(tensor, 1)
        assert torch.equal(tensor, inputs[1])
        gathered = torch.empty(6 * ranks * ranks, dtype=dtype)
        dist.all_gather_into_tensor(gathered, inputs[rank])
        assert torch.equal(gathered, torch.cat(inputs))
        parts = [torch.empty(6 * ranks, dtype=dtype) for _ in range(ranks)]
        work = dist.all_gather(parts, inputs[rank], async_op=True)
        assert torch.equal(torch.cat(parts), gathered), "done before wait"
        work.wait()
        received = torch.empty(6 * ranks, dtype=dtype)
        dist.all_to_all_single(received, inputs[rank])
        assert torch.equal(received, torch.cat([tensor.view(ranks, 6)[rank] for tensor in inputs]))
    objects: list[Any] = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert [found["rank"] for found in objects] == list(range(ranks))
    sizes = [1, 3] if rank == 0 else [1, 1]
    uneven = torch.empty(2 if rank == 0 else 4)
    dist.all_to_all_single(
        uneven, torch.full((sum(sizes),), rank + 1.0), [1, 1] if rank == 0 else [3, 1], sizes
    )
    assert uneven.tolist() == ([1.0, 2.0] if rank == 0 else [1.0, 1.0, 1.0, 2.0])
    dist.all_reduce(torch.empty(0))
    dist.barrier()


def deepspeeds(rank: int, ranks: int) -> list[Any]:
    """DeepSpeed's own class for this backend, with our functions."""
    import deepspeed.comm as comm
    from deepspeed.comm.ccl import CCLBackend

    backend = CCLBackend(rank=rank, world_size=ranks)
    group = backend.new_group([0, 1])
    tensors = [torch.full((3,), rank + 1.0) for _ in range(4)]
    backend.all_reduce(tensors[0])
    backend.inference_all_reduce(tensors[1], comm.ReduceOp.MAX)
    backend.broadcast(tensors[2], 1, group)
    backend.all_reduce(tensors[3], op=comm.ReduceOp.AVG, group=group)
    backend.barrier()
    return [tensor[0].item() for tensor in tensors]


def upstreams(rank: int, ranks: int) -> list[list[float]]:
    """Upstream's functions in a group of all ranks and of each alone, from [1, 2] and [10, 20]."""
    from accel_cpu.comm_ops import CclComm

    op, everyone = CclComm(), list(range(ranks))
    op.initialize(ranks, rank, torch.tensor(op.get_kvs_addr(rank)))
    op.initialize_sub_comm(1, 0, torch.tensor(op.get_sub_kvs_addr(True)), [rank])
    assert (op.get_rank(everyone), op.get_world_size(everyone)) == (rank, ranks)
    found = [torch.tensor([1.0, 2.0]) * 10**rank for _ in range(7)]
    op.all_reduce(found[0], dist.ReduceOp.MAX, everyone, False)
    op.all_reduce(found[1], "ReduceOp.PRODUCT", everyone, False)
    op.all_reduce(found[2], dist.ReduceOp.SUM, [rank], False)
    op.all_reduce_caching(found[3], dist.ReduceOp.MIN, "layer 0", everyone, False)
    op.inference_all_reduce(found[4], dist.ReduceOp.SUM)
    op.broadcast(found[5], ranks - 1, everyone, False)
    op.broadcast(found[6], 0, [rank], False)
    op.barrier(everyone, False)
    with pytest.raises(KeyError):
        op.all_reduce(found[0], dist.ReduceOp.SUM, (7, 9), False)
    return [tensor.tolist() for tensor in found]
