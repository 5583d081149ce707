# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every collective, between the ranks of a group that `torchrun` or `spawn` has started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from accel_sim.checks import Checks, Device, expect, same
from accel_sim.checks.ranks import NO_AVERAGE, here, mine

CHECKS = Checks()


@CHECKS
def all_reduce(_: Device) -> None:
    rank, size, device = here()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32):
        tensor = mine(4, value=rank + 1, dtype=dtype)
        dist.all_reduce(tensor)
        same(tensor, [size * (size + 1) // 2] * 4)
    average = [] if device.type in NO_AVERAGE else [(dist.ReduceOp.AVG, (size - 1) / 2)]
    for op, expected in (*average, (dist.ReduceOp.MAX, size - 1), (dist.ReduceOp.MIN, 0)):
        tensor = mine(3)
        dist.all_reduce(tensor, op=op)
        same(tensor, [expected] * 3)


@CHECKS
def all_gather_into_tensor(_: Device) -> None:
    _rank, size, device = here()
    expected = [float(i) for i in range(size) for _ in range(3)]
    whole = torch.zeros(size * 3, device=device)
    dist.all_gather_into_tensor(whole, mine(3))
    same(whole, expected)
    part = torch.zeros(size * 3 + 5, device=device)[2 : 2 + size * 3]
    work = dist.all_gather_into_tensor(part, mine(3), async_op=True)
    assert work is not None
    work.wait()
    same(part, expected)


@CHECKS
def all_gather(_: Device) -> None:
    rank, size, device = here()
    outputs = [torch.zeros(2, device=device) for _ in range(size)]
    dist.all_gather(outputs, mine(2))
    same(torch.cat(outputs), [float(i) for i in range(size) for _ in range(2)])
    outputs = [torch.zeros(i + 1, device=device) for i in range(size)]
    dist.all_gather(outputs, mine(rank + 1))
    same(torch.cat(outputs), [float(i) for i in range(size) for _ in range(i + 1)])


@CHECKS
def reduce_scatter(_: Device) -> None:
    rank, size, device = here()
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        output = torch.zeros(3, device=device, dtype=dtype)
        dist.reduce_scatter_tensor(output, torch.arange(3 * size, device=device).to(dtype))
        same(output, (torch.arange(3) + 3 * rank) * size)
    output = torch.zeros(2, device=device)
    dist.reduce_scatter(output, [mine(2, value=i + rank) for i in range(size)])
    same(output, [size * (rank + (size - 1) / 2)] * 2)


def _refused(call: Callable[[], object], words: str) -> None:
    """The call raises these words on each rank, ahead of any exchange."""
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        expect(words in str(error), f"{words!r} is not in {error}")
    else:
        raise AssertionError(f"it is accepted: {words}")


@CHECKS
def what_real_backends_refuse(d: Device) -> None:
    """Of what gloo would do with the tensors' bytes; csrc/distributed/rules.cpp has the sources."""
    _rank, size, device = here()
    flags, shorts = mine(2, dtype=torch.int32), mine(2, dtype=torch.int16)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        _refused(partial(dist.all_reduce, flags, op=op), "Cannot use ReduceOp.B")
    if d.type in NO_AVERAGE:
        _refused(lambda: dist.all_reduce(mine(2), op=dist.ReduceOp.AVG), "Cannot use ReduceOp.AVG")
    if d.type in ("cuda", "xpu", "mlu", "hpu"):
        _refused(lambda: dist.broadcast(shorts, 0), "data type is not supported")
    group: Any = dist.group.WORLD
    columns = [[torch.zeros(2, 1, device=device) for _ in range(size)]]
    options = dist.GatherOptions()
    options.rootRank = dist.get_rank()
    _refused(lambda: group.gather(columns, [mine(2)], options), "invalid tensor type or size")
    _refused(
        lambda: dist.reduce_scatter_tensor(mine(2, dtype=torch.int32), mine(2 * size)),
        "must have the same type",
    )
    uneven = [mine(3 + i) for i in range(size)]
    _refused(lambda: dist.reduce_scatter(mine(2), uneven), "must have the same size")


@CHECKS
def shapes_that_real_backends_accept(_: Device) -> None:
    """Only the number of elements counts where one tensor is gathered, which gloo is stricter about."""
    _rank, size, device = here()
    whole = torch.zeros(size * 2, device=device)
    dist.all_gather_into_tensor(whole, mine(2, 1))
    same(whole, [float(i) for i in range(size) for _ in range(2)])


@CHECKS
def broadcast(_: Device) -> None:
    rank, _size, device = here()
    scalar = torch.tensor(float(rank), device=device)
    dist.broadcast(scalar, 0)
    same(scalar, 0.0)
    flags = torch.tensor([True, rank == 0], device=device)
    dist.broadcast(flags, 0)
    same(flags, [True, True])
    dist.barrier()


@CHECKS
def all_to_all(_: Device) -> None:
    rank, size, device = here()
    output = torch.zeros(size * 2, device=device)
    dist.all_to_all_single(output, torch.arange(size * 2, device=device).float() + 10 * rank)
    same(output, [10.0 * i + 2 * rank + k for i in range(size) for k in range(2)])
    sizes_in, sizes_out = [rank + i for i in range(size)], [i + rank for i in range(size)]
    output = torch.zeros(sum(sizes_out), 4, device=device)
    dist.all_to_all_single(output, mine(sum(sizes_in), 4), sizes_out, sizes_in)
    same(output[:, 0], [float(i) for i in range(size) for _ in range(sizes_out[i])])
    outputs = [torch.zeros(2, device=device) for _ in range(size)]
    dist.all_to_all(outputs, [mine(2, value=10 * rank + i) for i in range(size)])
    same(torch.cat(outputs), [10.0 * i + rank for i in range(size) for _ in range(2)])


@CHECKS
def to_and_from_one(_: Device) -> None:
    rank, size, device = here()
    total = mine(2, value=rank + 1)
    dist.reduce(total, 0)
    same(total, [size * (size + 1) / 2 if rank == 0 else rank + 1] * 2)
    gathered = [torch.zeros(2, device=device) for _ in range(size)] if rank == 0 else None
    dist.gather(mine(2), gathered, 0)
    if gathered is not None:
        same(torch.cat(gathered), [float(i) for i in range(size) for _ in range(2)])
    output = torch.zeros(2, device=device)
    dist.scatter(output, [mine(2, value=i) for i in range(size)] if rank == 0 else None, 0)
    same(output, [float(rank)] * 2)


@CHECKS
def coalesced(_: Device) -> None:
    coalescing: Any = distributed_c10d._coalescing_manager
    _rank, size, device = here()
    tensors = [mine(3) + i for i in range(3)]
    with coalescing(device=device, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, [size * i + size * (size - 1) / 2] * 3)
    outputs = [torch.zeros(size * 2, device=device) for _ in range(2)]
    with coalescing(device=device, async_ops=True) as manager:
        for output in outputs:
            dist.all_gather_into_tensor(output, mine(2))
    manager.wait()
    same(outputs[1], [float(i) for i in range(size) for _ in range(2)])


@CHECKS
def objects(_: Device) -> None:
    rank, size, _device = here()
    found: list[Any] = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    expect(found[1] == {"rank": 1})
    texts = [f"from {rank}"]
    dist.broadcast_object_list(texts, 0)
    expect(texts == ["from 0"])


@CHECKS
def groups(_: Device) -> None:
    _rank, size, _device = here()
    group = dist.new_group(list(range(size)))
    tensor = mine(1, value=1)
    dist.all_reduce(tensor, group=group)
    same(tensor, [float(size)])


@CHECKS
def functional(_: Device) -> None:
    from torch.distributed import _functional_collectives

    rank, size, _device = here()
    assert dist.group.WORLD is not None
    result = _functional_collectives.all_reduce(mine(2, value=rank + 1), "sum", dist.group.WORLD)
    same(result + 0, [size * (size + 1) / 2] * 2)


@CHECKS
def data_parallel(_: Device) -> None:
    _rank, size, device = here()
    torch.manual_seed(0)
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
    module(mine(2, 4)).sum().backward()
    gradient = module.module.weight.grad
    gathered = [torch.zeros_like(gradient) for _ in range(size)]
    dist.all_gather(gathered, gradient)
    same(gathered[0], gathered[1].cpu())
    same(gathered[0], torch.full((4, 4), float(size - 1)))


@CHECKS
def data_parallel_through_a_hook(_: Device) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    rank, size, device = here()
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
    module.register_comm_hook(None, default_hooks.fp16_compress_hook)
    module(mine(2, 4, value=rank + 1)).sum().backward()
    same(module.module.weight.grad, torch.full((4, 4), float(size + 1)))


@CHECKS
def fully_sharded(d: Device) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    _rank, size, device = here()
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    sharded = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    sharded.load_state_dict(host.state_dict())
    sharded.to(device)
    mesh = init_device_mesh(d.type, (size,))
    for part in (*sharded, sharded):
        # Not every device's collectives have an average, which is FSDP2's default.
        fully_shard(part, mesh=mesh).set_force_sum_reduction_for_comms(enable=d.type in NO_AVERAGE)
    optimizers = [torch.optim.AdamW(module.parameters()) for module in (host, sharded)]
    for seed in range(3):
        given = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        losses = [
            module(given.to(place)).pow(2).mean() for module, place in ((host, "cpu"), (sharded, device))
        ]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        expect(abs(losses[0].item() - losses[1].item()) < 1e-6, "the losses differ from the CPU's")
