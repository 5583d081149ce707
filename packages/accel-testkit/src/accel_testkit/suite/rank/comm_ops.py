# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of `deepspeed_ccl_comm`, as DeepSpeed's class for that backend calls them, on any process group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_testkit.suite import op_builders


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Make groups of all ranks and of each rank alone, and reduce in them, from [1, 2] and [10, 20]."""
    answer["shared memory"] = _through_shared_memory(accelerator)
    builder = accelerator.create_op_builder("CCLCommBuilder")
    if op_builders.is_missing(builder):
        return
    op = builder.load()
    size, rank = dist.get_world_size(), dist.get_rank()
    device, ranks = accelerator.device(accelerator.current_device()), tuple(range(size))

    def mine() -> torch.Tensor:
        return torch.tensor([1.0 * 10**rank, 2.0 * 10**rank], device=device)

    answer["collectives"] = sorted(op.get_available_coll())
    addresses = [list(op.get_kvs_addr(rank)), list(op.get_sub_kvs_addr(rank == 0))]
    answer["addresses"] = [bool(each) and all(type(part) is int for part in each) for each in addresses]
    op.initialize(size, rank, torch.tensor(addresses[0]).to(torch.uint8))
    op.initialize_sub_comm(1, 0, torch.tensor(addresses[1]).to(torch.uint8), [rank])
    answer["place"] = [
        op.get_rank(list(ranks)),
        op.get_world_size(list(ranks)),
        op.get_rank(),
        op.get_world_size(),
    ]
    results: dict[str, torch.Tensor] = {name: mine() for name in _NAMES}
    op.all_reduce(results["sum"], dist.ReduceOp.SUM, ranks, False)
    op.all_reduce(results["most"], dist.ReduceOp.MAX, ranks, False)
    op.all_reduce(results["product"], "ReduceOp.PRODUCT", list(ranks), True)
    op.all_reduce(results["alone"], dist.ReduceOp.SUM, [rank], False)
    op.all_reduce_caching(results["cached"], dist.ReduceOp.MIN, "layer 0", ranks, False)
    op.inference_all_reduce(results["inference"], dist.ReduceOp.SUM)
    op.broadcast(results["from the last"], size - 1, ranks, False)
    op.broadcast(results["from the first"], 0, list(ranks), True)
    op.broadcast(results["from itself"], 0, [rank], False)
    op.barrier(ranks, False)
    answer["results"] = {name: tensor.tolist() for name, tensor in results.items()}
    answer["others"] = _refuses_other_groups(op, mine())


def _through_shared_memory(accelerator: Any) -> dict[str, Any]:
    """The results of `deepspeed_shm_comm`; nothing without the op."""
    builder = accelerator.create_op_builder("ShareMemCommBuilder")
    if op_builders.is_missing(builder) or not builder.is_compatible():
        return {}
    op, rank = builder.load(), dist.get_rank()
    op.initialize(dist.get_world_size(), rank)
    device = accelerator.device(accelerator.current_device())
    found: dict[str, Any] = {"level": op.vector_kernel_level()}
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.tensor([1.0, 2.0], dtype=dtype, device=device) * 10**rank
        total = op.inference_all_reduce(tensor)
        before = tensor.tolist()
        same = op.inference_all_reduce_(tensor) is tensor
        found[str(dtype)] = [total.tolist(), before, tensor.tolist(), same]
    operators: Any = torch.ops.deepspeed
    found["operator"] = hasattr(operators, "inference_all_reduce_")
    return found


_NAMES = (
    "sum", "most", "product", "alone", "cached", "inference", "from the last", "from the first", "from itself",
)  # fmt: skip


def _refuses_other_groups(op: Any, tensor: torch.Tensor) -> bool:
    try:
        op.all_reduce(tensor, dist.ReduceOp.SUM, (7, 9), False)
    except Exception:
        return True
    return False
