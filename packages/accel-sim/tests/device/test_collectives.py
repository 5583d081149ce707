# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives and transfers between the ranks that torchrun has started, synchronous and asynchronous."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from accel_sim import vendors

from .conftest import Device, raises, same

#: Device types whose collectives have no average (csrc/collectives.cpp).
NO_AVERAGE = ("mlu", "hpu")


#: What real backends raise for arguments that they do not take.
REFUSED = (RuntimeError, TypeError, ValueError)


def here() -> tuple[int, int, torch.device]:
    """Return this rank, the number of ranks, and this rank's device."""
    place: Any = torch.accelerator.current_accelerator()
    device = torch.device(place.type, torch.accelerator.current_device_index())
    return dist.get_rank(), dist.get_world_size(), device


def mine(*shape: int, value: float | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor on this rank's device, filled with the value, or with the rank."""
    rank, _, device = here()
    return torch.full(shape, rank if value is None else value, dtype=dtype, device=device)


def on_first(parts: list[torch.Tensor]) -> list[torch.Tensor] | None:
    return parts if dist.get_rank() == 0 else None


def refuses(words: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Raise AssertionError unless the call raises what real backends do, with these words."""
    assert type(raises(partial(function, *arguments, **options), REFUSED, words)) in REFUSED


@pytest.fixture(scope="module", autouse=True)
def _group(device: Device) -> Iterator[None]:
    dist.init_process_group(vendors.find(device.type).collectives, timeout=timedelta(seconds=60))
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]) % device.count)
    yield
    dist.destroy_process_group()


def test_all_reduce() -> None:
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


def test_all_gather() -> None:
    rank, size, device = here()
    outputs = [torch.zeros(2, device=device) for _ in range(size)]
    dist.all_gather(outputs, mine(2))
    same(torch.cat(outputs), [float(i) for i in range(size) for _ in range(2)])
    outputs = [torch.zeros(i + 1, device=device) for i in range(size)]
    dist.all_gather(outputs, mine(rank + 1))
    same(torch.cat(outputs), [float(i) for i in range(size) for _ in range(i + 1)])


def test_what_real_backends_refuse() -> None:
    """Of what gloo would do with the tensors' bytes; csrc/collectives.cpp has the sources."""
    _rank, size, device = here()
    integers, shorts = mine(2, dtype=torch.int32), mine(2, dtype=torch.int16)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        refuses("Cannot use ReduceOp.B", dist.all_reduce, integers, op=op)
    if device.type in NO_AVERAGE:
        refuses("Cannot use ReduceOp.AVG", dist.all_reduce, mine(2), op=dist.ReduceOp.AVG)
    if device.type in ("cuda", "xpu", "mlu", "hpu"):
        refuses("data type is not supported", dist.broadcast, shorts, 0)
    group: Any = dist.group.WORLD
    columns = [[torch.zeros(2, 1, device=device) for _ in range(size)]]
    options = dist.GatherOptions()
    options.rootRank = dist.get_rank()
    refuses("invalid tensor type or size", group.gather, columns, [mine(2)], options)
    refuses("must have the same type", dist.reduce_scatter_tensor, integers, mine(2 * size))
    refuses("must have the same size", dist.reduce_scatter, mine(2), [mine(3 + i) for i in range(size)])


def test_hccl_reduces_what_torch_npu_reduces() -> None:
    """As ProcessGroupHCCL of torch_npu 2.13.0 answers on an emulated driver."""
    rank, size, device = here()
    if device.type != "npu":
        pytest.skip("HCCL is the npu's")
    total, whole = size * (size + 1) // 2, mine(2 * size, value=3, dtype=torch.int16)
    summed, kept, piece = (mine(2, value=rank + 1, dtype=torch.int16) for _ in range(3))
    dist.all_reduce(summed)
    same(summed, [total] * 2)
    dist.reduce(kept, 0)
    same(kept, [total if rank == 0 else rank + 1] * 2)
    dist.reduce_scatter_tensor(piece, whole)
    same(piece, [3 * size] * 2)
    dist.all_reduce(complex_ones := mine(2, value=1, dtype=torch.complex64))
    same(complex_ones.real, [float(size)] * 2)
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        moved = mine(2, value=rank, dtype=torch.int32).to(dtype)
        dist.broadcast(moved, 0)
        same(moved.to(torch.int32), [0, 0])
        refuses("HCCL allreduce: Unsupported data type", dist.all_reduce, moved)
    for dtype in (torch.uint8, torch.bool):
        piece, whole = (mine(count, value=1, dtype=dtype) for count in (2, 2 * size))
        refuses("Unsupported data type at::kByte/at::kBool", dist.reduce_scatter_tensor, piece, whole)
    parts = on_first([torch.zeros_like(complex_ones) for _ in range(size)])
    refuses("Unsupported data type for HCCL process group", dist.reduce, complex_ones, 0)
    refuses("Unsupported data type for HCCL process group", dist.gather, complex_ones, parts, 0)
    refuses("Cannot use ReduceOp.BAND with HCCL", dist.all_reduce, mine(2), op=dist.ReduceOp.BAND)
    refuses("must differ in size", dist.all_gather_into_tensor, mine(5), mine(3))
    refuses("must have the same type", dist.all_gather_into_tensor, mine(2 * size).half(), mine(2))


def test_premultiplied_sums() -> None:
    rank, size, device = here()
    op: Any = dist._make_nccl_premul_sum(0.5)  # type: ignore[attr-defined]
    if device.type not in ("npu", "cuda"):
        refuses("Cannot use ReduceOp.PREMUL_SUM", dist.all_reduce, mine(2), op=op)
    else:
        total, kept, piece = (mine(2, value=rank + 1) for _ in range(3))
        whole, half = mine(2 * size, value=rank + 1), size * (size + 1) / 4
        dist.all_reduce(total, op=op)
        same(total, [half] * 2)
        dist.reduce(kept, 0, op)
        same(kept, [half if rank == 0 else rank + 1] * 2)
        dist.reduce_scatter_tensor(piece, whole, op)
        same(piece, [half] * 2)
        same(whole, [rank + 1] * 2 * size)
        refuses("PreMulSum Data type must be", dist.all_reduce, mine(2, dtype=torch.int32), op=op)


def test_npu_has_the_backends_of_torch_npu() -> None:
    _rank, _size, device = here()
    if device.type != "npu":
        pytest.skip("HCCL is the npu's")
    distributed: Any = dist
    assert distributed.is_hccl_available()
    assert "lccl" in dist.Backend.backend_list
    assert dist.Backend.default_device_backend_map["npu"] == "hccl"


#: Each with a tensor whose size or type differs between the ranks, and that of both ranks' parts.
CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "all_reduce": lambda each, both: dist.all_reduce(each),
    "asynchronous": lambda each, both: dist.all_reduce(each, async_op=True).wait(),
    "reduce": lambda each, both: dist.reduce(each, 0),
    "broadcast": lambda each, both: dist.broadcast(each, 0),
    "all_gather": lambda each, both: dist.all_gather([each.clone(), each.clone()], each),
    "all_gather_into_tensor": lambda each, both: dist.all_gather_into_tensor(both, each),
    "reduce_scatter_tensor": lambda each, both: dist.reduce_scatter_tensor(each, both),
    "gather": lambda each, both: dist.gather(each, on_first([each.clone(), each.clone()]), 0),
    "scatter": lambda each, both: dist.scatter(each, on_first([each.clone(), each.clone()]), 0),
    "all_to_all_single": lambda each, both: dist.all_to_all_single(both.clone(), both),
    "another": lambda each, both: dist.broadcast(each, 0) if dist.get_rank() else dist.all_reduce(each),
}


@pytest.mark.parametrize("name", CALLS)
def test_different_calls_raise_on_both_ranks(name: str) -> None:
    rank, size, _device = here()
    for others in ((8, torch.float32), (2, torch.float32), (4, torch.int32), (2, torch.float64)):
        count, dtype = ((4, torch.float32), others)[rank]
        tensors = mine(count, dtype=dtype), mine(2 * count, dtype=dtype)
        raises(partial(CALLS[name], *tensors), RuntimeError, "ranks called")
    tensor = mine(2, value=1)
    dist.all_reduce(tensor)  # nothing has been moved, so that the group goes on
    same(tensor, [float(size)] * 2)


@pytest.mark.parametrize("how", ["send", "isend", "batch", "from any"])
def test_different_transfers_raise_on_both_ranks(how: str) -> None:
    rank, _size, _device = here()
    sent = mine(4, value=1)
    for received in (mine(8), mine(2), mine(0), mine(4, dtype=torch.int32), mine(2, dtype=torch.int64)):
        group = dist.new_group()
        before, tensor = received.clone(), (sent, received)[rank]

        def exchange(tensor: torch.Tensor = tensor, group: Any = group) -> None:
            if how == "batch":
                operation = dist.isend if rank == 0 else dist.irecv
                for work in dist.batch_isend_irecv([dist.P2POp(operation, tensor, 1 - rank, group)]):
                    work.wait()
            elif rank == 0:
                dist.isend(tensor, 1, group).wait() if how == "isend" else dist.send(tensor, 1, group)
            else:
                dist.recv(tensor, None if how == "from any" else 0, group)

        raises(exchange, RuntimeError, "receive differ: rank 0 sends 16 bytes of Float; rank 1 receives")
        same(received, before.cpu())
        raises(partial(dist.send, sent, 1 - rank, group), RuntimeError, "a send and its receive differ")


def test_sends_in_any_order() -> None:
    rank, _size, device = here()
    sent = [(mine(size, value=size), tag) for tag in (7, 1 << 20) for size in (1, 500_000, 3)]
    works = [dist.isend(tensor, 1 - rank, tag=tag) for tensor, tag in sent]
    for size, tag in ((size, tag) for tag in (1 << 20, 7) for size in (1, 500_000, 3)):
        received = torch.zeros(size, device=device)
        assert dist.recv(received, None if tag == 7 else 1 - rank, tag=tag) == 1 - rank
        same(received[-1], float(size))
    for work in reversed(works):
        work.wait()


def test_a_collective_that_is_refused_holds_no_memory() -> None:
    _rank, size, device = here()
    gc.collect()  # of what earlier tests left
    before, refused = torch.accelerator.memory_allocated(), False
    try:  # not pytest.raises, whose traceback holds the tensor
        dist.broadcast(torch.ones(1 << 20, device=device), size + 1)
    except REFUSED:
        refused = True
    assert (refused, torch.accelerator.memory_allocated()) == (True, before)


def test_all_to_all() -> None:
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


def test_coalesced() -> None:
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


def test_data_parallel() -> None:
    _rank, size, device = here()
    torch.manual_seed(0)
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
    module(mine(2, 4)).sum().backward()
    gradient = module.module.weight.grad
    gathered = [torch.zeros_like(gradient) for _ in range(size)]
    dist.all_gather(gathered, gradient)
    same(gathered[0], gathered[1].cpu())
    same(gathered[0], torch.full((4, 4), float(size - 1)))


def test_fully_sharded() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    _rank, size, device = here()
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    sharded = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    sharded.load_state_dict(host.state_dict())
    sharded.to(device)
    mesh = init_device_mesh(device.type, (size,))
    for part in (*sharded, sharded):
        # Not every device's collectives have an average, which is FSDP2's default.
        fully_shard(part, mesh=mesh).set_force_sum_reduction_for_comms(enable=device.type in NO_AVERAGE)
    optimizers = [torch.optim.AdamW(module.parameters()) for module in (host, sharded)]
    for seed in range(3):
        given = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        losses = [host(given).pow(2).mean(), sharded(given.to(device)).pow(2).mean()]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert abs(losses[0].item() - losses[1].item()) < 1e-6, "the losses differ from the CPU's"


def test_transfers_complete_by_themselves() -> None:
    rank, size, device = here()
    output = torch.zeros(3, device=device)
    works = [dist.isend(mine(3), (rank + 1) % size), dist.irecv(output, (rank - 1) % size)]
    torch.accelerator.synchronize()
    for work in works:
        assert work.is_completed(), "a device that was synchronized still has work"
        assert work.wait()
        assert work.wait(), "a work cannot be waited for again"
    same(output, [float((rank - 1) % size)] * 3)


def test_future_does_not_wait() -> None:
    """Rank 1 takes part only once rank 0 has the future."""
    rank, size, device = here()
    has_average = device.type not in NO_AVERAGE
    op = dist.ReduceOp.AVG if has_average else dist.ReduceOp.SUM
    summed, received, go = mine(3), mine(2, value=-1), mine(1)
    total = (size - 1) / 2 if has_average else size * (size - 1) / 2
    if rank == 0:
        works = dist.all_reduce(summed, op=op, async_op=True), dist.irecv(received, 1)
        sums, transfer = (work.get_future() for work in works)
        assert not sums.done(), "a future is done before the others take part"
        assert not transfer.done(), "a future is done before the others take part"
        doubled = sums.then(lambda done: done.value()[0] * 2)
        dist.send(go, 1)
        same(doubled.wait(), [2 * total] * 3)
        same(transfer.wait()[0], [1.0] * 2)
    else:
        dist.recv(go, 0)
        dist.all_reduce(summed, op=op)
        dist.send(mine(2), 0)
    same(summed, [total] * 3)


def test_finished_work_holds_no_memory() -> None:
    before = torch.accelerator.memory_allocated()
    tensor = mine(1 << 20)
    dist.all_reduce(tensor)
    del tensor
    # gloo's thread lets go a moment after it has said that it is done.
    until = time.monotonic() + 10
    while torch.accelerator.memory_allocated() > before and time.monotonic() < until:
        time.sleep(0.001)
    assert torch.accelerator.memory_allocated() <= before, "a finished collective is kept in memory"
