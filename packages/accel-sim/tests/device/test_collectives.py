# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives and transfers between the ranks that torchrun has started, synchronous and asynchronous."""

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
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.accelerator.current_accelerator()
    assert device is not None
    return rank, size, torch.device(device.type, torch.accelerator.current_device_index())


def mine(*shape: int, value: float | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor on this rank's device, filled with the value, or with the rank."""
    rank, _, device = here()
    return torch.full(shape, rank if value is None else value, dtype=dtype, device=device)


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
    flags, shorts = mine(2, dtype=torch.int32), mine(2, dtype=torch.int16)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        raises(partial(dist.all_reduce, flags, op=op), REFUSED, "Cannot use ReduceOp.B")
    if device.type in NO_AVERAGE:
        raises(lambda: dist.all_reduce(mine(2), op=dist.ReduceOp.AVG), REFUSED, "Cannot use ReduceOp.AVG")
    if device.type in ("cuda", "xpu", "mlu", "hpu"):
        raises(lambda: dist.broadcast(shorts, 0), REFUSED, "data type is not supported")
    group: Any = dist.group.WORLD
    columns = [[torch.zeros(2, 1, device=device) for _ in range(size)]]
    options = dist.GatherOptions()
    options.rootRank = dist.get_rank()
    raises(lambda: group.gather(columns, [mine(2)], options), REFUSED, "invalid tensor type or size")
    integers = mine(2, dtype=torch.int32)
    raises(lambda: dist.reduce_scatter_tensor(integers, mine(2 * size)), REFUSED, "must have the same type")
    uneven = [mine(3 + i) for i in range(size)]
    raises(lambda: dist.reduce_scatter(mine(2), uneven), REFUSED, "must have the same size")


def test_hccl_reduces_what_torch_npu_reduces() -> None:
    """As ProcessGroupHCCL of torch_npu 2.13.0 answers on an emulated driver."""
    rank, size, device = here()
    if device.type != "npu":
        pytest.skip("HCCL is the npu's")
    shorts = mine(2, value=rank + 1, dtype=torch.int16)
    dist.all_reduce(shorts)
    same(shorts, [size * (size + 1) // 2] * 2)
    kept = mine(2, value=rank + 1, dtype=torch.int16)
    dist.reduce(kept, 0)
    same(kept, [size * (size + 1) // 2 if rank == 0 else rank + 1] * 2)
    piece = mine(2, dtype=torch.int16)
    dist.reduce_scatter_tensor(piece, mine(2 * size, value=3, dtype=torch.int16))
    same(piece, [3 * size] * 2)
    dist.all_reduce(complex_ones := mine(2, value=1, dtype=torch.complex64))
    same(complex_ones.real, [float(size)] * 2)
    refused: list[tuple[Any, str]] = []
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        moved = mine(2, value=rank, dtype=torch.int32).to(dtype)
        dist.broadcast(moved, 0)
        same(moved.to(torch.int32), [0, 0])
        refused.append((partial(dist.all_reduce, moved), "HCCL allreduce: Unsupported data type"))
    for dtype in (torch.uint8, torch.bool):
        whole = mine(2 * size, value=1, dtype=dtype)
        scatter = partial(dist.reduce_scatter_tensor, mine(2, value=1, dtype=dtype), whole)
        refused.append((scatter, "Unsupported data type at::kByte/at::kBool"))
    parts = [torch.zeros(2, dtype=torch.complex64, device=device) for _ in range(size)] if rank == 0 else None
    refused += [
        (partial(dist.reduce, complex_ones, 0), "Unsupported data type for HCCL process group"),
        (partial(dist.gather, complex_ones, parts, 0), "Unsupported data type for HCCL process group"),
        (partial(dist.all_reduce, mine(2), op=dist.ReduceOp.BAND), "Cannot use ReduceOp.BAND with HCCL"),
        (partial(dist.all_gather_into_tensor, mine(5), mine(3)), "must differ in size"),
        (partial(dist.all_gather_into_tensor, mine(2 * size).half(), mine(2)), "must have the same type"),
    ]
    for call, text in refused:
        with pytest.raises(RuntimeError, match=text) as caught:
            call()
        assert type(caught.value) is RuntimeError


def test_premultiplied_sums() -> None:
    rank, size, device = here()
    op: Any = dist._make_nccl_premul_sum(0.5)  # type: ignore[attr-defined]
    if device.type not in ("npu", "cuda"):
        raises(partial(dist.all_reduce, mine(2), op=op), REFUSED, "Cannot use ReduceOp.PREMUL_SUM")
    else:
        total = mine(2, value=rank + 1)
        dist.all_reduce(total, op=op)
        half = size * (size + 1) / 4
        same(total, [half] * 2)
        kept, whole, piece = mine(2, value=rank + 1), mine(2 * size, value=rank + 1), mine(2)
        dist.reduce(kept, 0, op)
        same(kept, [half if rank == 0 else rank + 1] * 2)
        dist.reduce_scatter_tensor(piece, whole, op)
        same(piece, [half] * 2)
        same(whole, [rank + 1] * 2 * size)
        raises(
            partial(dist.all_reduce, mine(2, dtype=torch.int32), op=op),
            REFUSED,
            "PreMulSum Data type must be",
        )


def test_npu_backend_has_torch_npu_names() -> None:
    _rank, _size, device = here()
    if device.type != "npu":
        pytest.skip("HCCL is the npu's")
    distributed: Any = dist
    backend: Any = distributed.group.WORLD._get_backend(device)
    assert type(backend).__name__ == "ProcessGroupHCCL"
    assert (backend.options.backend, backend.options._timeout) == ("hccl", timedelta(seconds=60))
    backend._set_default_timeout(timedelta(seconds=50))
    assert backend.options._timeout == timedelta(seconds=50)
    backend._set_default_timeout(timedelta(seconds=60))
    assert isinstance(backend.get_hccl_comm_name(0), str)
    assert distributed.is_hccl_available()
    assert "lccl" in dist.Backend.backend_list
    assert dist.Backend.default_device_backend_map["npu"] == "hccl"


def _reduce_scatter(elements: int, dtype: torch.dtype) -> None:
    size = dist.get_world_size()
    dist.reduce_scatter_tensor(mine(elements, dtype=dtype), mine(elements * size, dtype=dtype))


def _gather(elements: int, dtype: torch.dtype) -> None:
    rank, size, _device = here()
    dist.gather(mine(elements, dtype=dtype), [mine(elements, dtype=dtype)] * size if rank == 0 else None, 0)


def _scatter(elements: int, dtype: torch.dtype) -> None:
    rank, size, _device = here()
    dist.scatter(mine(elements, dtype=dtype), [mine(elements, dtype=dtype)] * size if rank == 0 else None, 0)


#: Each with the number of elements and the dtype, which differ between the ranks.
CALLS: dict[str, Callable[[int, torch.dtype], Any]] = {
    "all_reduce": lambda n, dtype: dist.all_reduce(mine(n, dtype=dtype)),
    "asynchronous": lambda n, dtype: dist.all_reduce(mine(n, dtype=dtype), async_op=True).wait(),
    "reduce": lambda n, dtype: dist.reduce(mine(n, dtype=dtype), 0),
    "broadcast": lambda n, dtype: dist.broadcast(mine(n, dtype=dtype), 0),
    "all_gather": lambda n, dtype: dist.all_gather(
        [mine(n, dtype=dtype) for _ in range(2)], mine(n, dtype=dtype)
    ),
    "all_gather_into_tensor": lambda n, dtype: dist.all_gather_into_tensor(
        mine(2 * n, dtype=dtype), mine(n, dtype=dtype)
    ),
    "reduce_scatter_tensor": _reduce_scatter,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all_single": lambda n, dtype: dist.all_to_all_single(
        mine(2 * n, dtype=dtype), mine(2 * n, dtype=dtype)
    ),
    "another": lambda n, _: dist.broadcast(mine(n), 0) if dist.get_rank() else dist.all_reduce(mine(n)),
}


@pytest.mark.parametrize("name", CALLS)
def test_different_calls_raise_on_both_ranks(name: str) -> None:
    rank, size, _device = here()
    for others in ((8, torch.float32), (2, torch.float32), (4, torch.int32), (2, torch.float64)):
        raises(partial(CALLS[name], *((4, torch.float32), others)[rank]), RuntimeError, "ranks called")
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

        raises(
            exchange,
            RuntimeError,
            "a send and its receive differ: rank 0 sends 16 bytes of Float; rank 1 receives",
        )
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
        assert work is not None
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
        assert works[0]
        assert works[1]
        sums, transfer = works[0].get_future(), works[1].get_future()
        assert not sums.done(), "a future is done before the others take part"
        assert not transfer.done(), "a future is done before the others take part"
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
