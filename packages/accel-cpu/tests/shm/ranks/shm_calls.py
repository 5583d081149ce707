# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What ranks call, and the checks of what they get."""

from __future__ import annotations

import random

import torch
import torch.distributed as dist

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
#: Around the sizes at which the algorithm changes: a cache line, 32 KiB, a slot, several slots.
SIZES = (0, 1, 2, 15, 63, 64, 65, 1000, 4096, 8191, 8193, 100_003, 600_001, 2_100_003)


def _tensor(seed: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        low, high = max(info.min, -(2**40)), min(info.max, 2**40)
        return torch.randint(low, high, (size,), generator=generator, dtype=torch.int64).to(dtype)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def _expected(tensors: list[torch.Tensor], operation: str) -> torch.Tensor:
    """Reduce in float64, or in the integer type itself."""
    dtype = tensors[0].dtype
    stacked = torch.stack(tensors) if dtype in INTEGERS else torch.stack(tensors).double()
    if operation == "PRODUCT":
        return stacked.prod(0, dtype=stacked.dtype)
    if operation in ("MIN", "MAX"):
        return stacked.amin(0) if operation == "MIN" else stacked.amax(0)
    total = stacked.sum(0, dtype=stacked.dtype)
    return total / len(tensors) if operation == "AVG" else total


def _bound(tensors: list[torch.Tensor], operation: str, expected: torch.Tensor) -> torch.Tensor:
    """Return the largest allowed difference of each element."""
    dtype, ranks = tensors[0].dtype, len(tensors)
    eps = torch.finfo(dtype).eps
    if operation in ("MIN", "MAX"):
        return torch.zeros_like(expected)
    if operation == "PRODUCT":
        scale = expected.abs()
    else:
        scale = torch.stack(tensors).double().abs().sum(0)
    inner = torch.finfo(dtype if dtype in (torch.float32, torch.float64) else torch.float32).eps
    # Half types are accumulated in float32 and rounded once; below their normal numbers the spacing is constant.
    rounding = expected.abs() * eps / 2 + torch.finfo(dtype).tiny * eps
    return ranks * inner * scale + rounding


def _check(found: torch.Tensor, tensors: list[torch.Tensor], operation: str) -> None:
    expected = _expected(tensors, operation)
    if found.dtype in INTEGERS:
        assert torch.equal(found, expected), operation
        return
    overflow = expected.abs() >= torch.finfo(found.dtype).max
    difference = (found.double() - expected).abs()
    assert bool((overflow | (difference <= _bound(tensors, operation, expected))).all()), (
        operation, found.dtype, found.numel(), difference.max(),
    )  # fmt: skip


def reductions(rank: int, ranks: int, seed: int, cases: int, sizes: tuple[int, ...]) -> int:
    """Random all_reduce and reduce_scatter calls, each checked against all ranks' inputs."""
    choose = random.Random(seed)
    for _ in range(cases):
        dtype, size = choose.choice(FLOATS + INTEGERS), choose.choice(sizes)
        operation = choose.choice([name for name in OPERATIONS if name != "AVG" or dtype in FLOATS])
        stride, scatter, start = choose.choice((1, 1, 2, 3)), choose.random() < 0.3, choose.randrange(2**30)
        count = size * ranks if scatter else size
        inputs = [_tensor(start + peer, dtype, count) for peer in range(ranks)]
        mine = torch.zeros(count * stride, dtype=dtype)[::stride]
        mine.copy_(inputs[rank])
        op = getattr(dist.ReduceOp, operation)
        if scatter:
            found = torch.empty(size * stride, dtype=dtype)[::stride]
            dist.reduce_scatter_tensor(found, mine, op=op)
            inputs = [tensor.view(ranks, size)[rank] for tensor in inputs]
        else:
            found = mine
            dist.all_reduce(found, op=op)
        _check(found, inputs, operation)
    return cases


def movements(rank: int, ranks: int, seed: int, cases: int, sizes: tuple[int, ...]) -> int:
    """Random broadcast, all_gather and all_to_all calls: bytes arrive unchanged."""
    choose = random.Random(seed)
    for _ in range(cases):
        dtype, size, start = (
            choose.choice((*FLOATS, torch.int64, torch.bool)),
            choose.choice(sizes),
            choose.randrange(2**30),
        )
        numbers = [_tensor(start + peer, torch.int8, size * ranks).to(dtype) for peer in range(ranks)]
        kind = choose.choice(("broadcast", "gather", "list", "exchange", "uneven"))
        if kind == "broadcast":
            root = choose.randrange(ranks)
            tensor = numbers[rank].clone()
            dist.broadcast(tensor, root)
            assert torch.equal(tensor, numbers[root])
        elif kind == "gather":
            gathered = torch.empty(size * ranks, dtype=dtype)
            dist.all_gather_into_tensor(gathered, numbers[rank][:size])
            assert torch.equal(gathered, torch.cat([tensor[:size] for tensor in numbers]))
        elif kind == "list":
            parts = [torch.empty(size, dtype=dtype) for _ in range(ranks)]
            dist.all_gather(parts, numbers[rank][:size])
            assert all(torch.equal(part, tensor[:size]) for part, tensor in zip(parts, numbers, strict=True))
        elif kind == "exchange":
            received = torch.empty(size * ranks, dtype=dtype)
            dist.all_to_all_single(received, numbers[rank])
            assert torch.equal(received, torch.cat([tensor.view(ranks, size)[rank] for tensor in numbers]))
        else:
            counts = [[choose.randrange(size + 1) for _ in range(ranks)] for _ in range(ranks)]
            sent = numbers[rank][: sum(counts[rank])]
            receives = [counts[peer][rank] for peer in range(ranks)]
            received = torch.empty(sum(receives), dtype=dtype)
            dist.all_to_all_single(received, sent, receives, counts[rank])
            pieces = [numbers[peer][: sum(counts[peer])].split(counts[peer])[rank] for peer in range(ranks)]
            assert torch.equal(received, torch.cat(pieces))
    return cases


def exact(rank: int, ranks: int) -> dict[str, bool]:
    """Compare with gloo, bit for bit, where a reduction does not round."""
    gloo = dist.new_group(backend="gloo")
    equal = {}
    for dtype in (*FLOATS, *INTEGERS):
        for operation in OPERATIONS if dtype in INTEGERS else ("MIN", "MAX"):
            if operation == "AVG":
                continue
            ours, theirs = (_tensor(rank, dtype, 5000) for _ in range(2))
            op = getattr(dist.ReduceOp, operation)
            dist.all_reduce(ours, op=op)
            dist.all_reduce(theirs, op=op, group=gloo)
            equal[f"{dtype} {operation}"] = torch.equal(ours, theirs)
    return equal


def without_memory(rank: int, ranks: int) -> str:
    """Run some collectives in a group whose rank 1 has a problem."""
    from accel_cpu.shm import rendezvous

    facts = rendezvous._facts
    problem = {"problem": "planted"} if rank == 1 else {}
    rendezvous._facts = lambda segment: facts(segment) | problem
    group = dist.new_group(backend="shm")
    rendezvous._facts = facts
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    parts = [torch.empty(3) for _ in range(ranks)]
    dist.all_gather(parts, tensor, group=group)
    dist.barrier(group=group)
    assert all(part.tolist() == [3.0] * 3 for part in parts)
    reason: str = group.reason
    return reason


def threads(rank: int, ranks: int) -> list[str]:
    """Names of the group's threads after synchronous calls, of which none needs one."""
    import threading

    dist.all_reduce(torch.ones(1))
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("accel-shm")]


def inference(rank: int, ranks: int) -> list[object]:
    """DeepSpeed's inference functions."""
    from accel_cpu.op_builder.comm import ShareMemCommBuilder

    op = ShareMemCommBuilder().load()
    op.initialize(ranks, rank)
    mine = torch.full((2,), rank + 1.0)
    summed = op.inference_all_reduce(mine)
    assert mine.tolist() == [rank + 1.0] * 2
    op.inference_all_reduce_(mine)
    assert not hasattr(torch.ops.deepspeed, "inference_all_reduce_")
    return [summed.tolist(), mine.tolist(), op.vector_kernel_level()]
