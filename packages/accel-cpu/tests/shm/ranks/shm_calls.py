# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What ranks call."""

import torch
import torch.distributed as dist


def of_another_length(rank: int, ranks: int) -> list[str]:
    """What is raised for lists that have no tensor for some rank, or one too many."""
    said = []
    for call in (
        lambda: dist.reduce_scatter(torch.empty(3), [torch.ones(3)] * (ranks - 1)),
        lambda: dist.all_gather([torch.empty(3) for _ in range(ranks + 1)], torch.ones(3)),
    ):
        try:
            call()
        except RuntimeError as error:
            said.append(str(error))
    return said


def threads(rank: int, ranks: int) -> list[str]:
    """Names of the group's threads after synchronous calls, of which none needs one."""
    import threading

    dist.all_reduce(torch.ones(1))
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("accel-shm")]


def inference(rank: int, ranks: int) -> list[object]:
    """DeepSpeed's inference functions."""
    from accel_cpu.comm_ops import ShareMemCommBuilder

    op = ShareMemCommBuilder().load()
    op.initialize(ranks, rank)
    mine = torch.full((2,), rank + 1.0)
    summed = op.inference_all_reduce(mine)
    assert mine.tolist() == [rank + 1.0] * 2
    op.inference_all_reduce_(mine)
    assert not hasattr(torch.ops.deepspeed, "inference_all_reduce_")
    return [summed.tolist(), mine.tolist(), op.vector_kernel_level()]
