# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous collectives and transfers: polled, waited for, ordered before the device's work, and as futures."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from accel_sim.checks import Checks, Device, expect, same
from accel_sim.checks.ranks import NO_AVERAGE, here, mine

CHECKS = Checks()


@CHECKS
def asynchronous(_: Device) -> None:
    _rank, size, _device = here()
    tensors = [mine(1000, value=i) for i in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        assert work is not None
        work.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, [i * size] * 1000)
    dropped = mine(10, value=1)
    dist.all_reduce(dropped, async_op=True)
    torch.accelerator.synchronize()
    same(dropped, [size] * 10)


@CHECKS
def send_and_receive(_: Device) -> None:
    rank, _size, _device = here()
    tensor = mine(3)
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        expect(dist.recv(tensor) == 0, "the sender is not named")
        same(tensor, [0.0] * 3)
    torch.accelerator.synchronize()
    dist.barrier()


@CHECKS
def transfers_complete_by_themselves(_: Device) -> None:
    rank, size, device = here()
    output = torch.zeros(3, device=device)
    works = [dist.isend(mine(3), (rank + 1) % size), dist.irecv(output, (rank - 1) % size)]
    torch.accelerator.synchronize()
    for work in works:
        assert work is not None
        expect(work.is_completed(), "a device that was synchronized still has work")
        expect(work.wait() and work.wait(), "a work cannot be waited for again")
    same(output, [float((rank - 1) % size)] * 3)


@CHECKS
def batch_of_transfers(_: Device) -> None:
    rank, size, device = here()
    outputs = [torch.zeros(3, device=device) for _ in range(2)]
    batch = []
    for tag, output in enumerate(outputs):
        batch.append(dist.P2POp(dist.isend, mine(3) + tag, (rank + 1) % size))
        batch.append(dist.P2POp(dist.irecv, output, (rank - 1) % size))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    torch.accelerator.synchronize()
    for tag, output in enumerate(outputs):
        same(output, [float((rank - 1) % size + tag)] * 3)


@CHECKS
def future_does_not_wait(_: Device) -> None:
    """Rank 1 takes part only once rank 0 has the future."""
    rank, size, device = here()
    has_average = device.type not in NO_AVERAGE
    op = dist.ReduceOp.AVG if has_average else dist.ReduceOp.SUM
    summed, received, go = mine(3), mine(2, value=-1), mine(1)
    total = (size - 1) / 2 if has_average else size * (size - 1) / 2
    if rank == 0:
        works = dist.all_reduce(summed, op=op, async_op=True), dist.irecv(received, 1)
        assert works[0]
        assert works[1]
        sums, transfer = works[0].get_future(), works[1].get_future()
        expect(not sums.done() and not transfer.done(), "a future is done before the others take part")
        doubled = sums.then(lambda done: done.value()[0] * 2)
        dist.send(go, 1)
        same(doubled.wait(), [2 * total] * 3)
        same(transfer.wait()[0], [1.0] * 2)
    elif rank == 1:
        dist.recv(go, 0)
        dist.all_reduce(summed, op=op)
        dist.send(mine(2), 0)
    else:
        dist.all_reduce(summed, op=op)
    same(summed, [total] * 3)


@CHECKS
def finished_work_holds_no_memory(_: Device) -> None:
    before = torch.accelerator.memory_allocated()
    tensor = mine(1 << 20)
    dist.all_reduce(tensor)
    del tensor
    # gloo's thread lets go a moment after it has said that it is done.
    until = time.monotonic() + 10
    while torch.accelerator.memory_allocated() > before and time.monotonic() < until:
        time.sleep(0.001)
    expect(torch.accelerator.memory_allocated() <= before, "a finished collective is kept in memory")
