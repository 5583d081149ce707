# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The collective operations that DeepSpeed uses, from [1, 2] on rank 0 and [10, 20] on rank 1."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_testkit.suite.rank import host_operations

Operation = Callable[[torch.Tensor], Any]
#: Guards against a hang, in seconds.
_LIMIT = 60.0


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Run every operation; put what this rank holds after each, or the error's text, into the answer."""
    answer["world"] = dist.get_world_size()
    answer["device"] = accelerator.current_device()
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        _do(accelerator, answer, f"all_reduce_{str(dtype).partition('.')[2]}", _all_reduce, dtype)
    for name, operation in _OPERATIONS.items():
        _do(accelerator, answer, name, operation, torch.float32)
    host_operations.compare(accelerator, answer)
    answer["barrier"] = _barrier(folder)


def _do(
    accelerator: Any, answer: dict[str, Any], name: str, operation: Operation, dtype: torch.dtype
) -> None:
    scale = 10 ** dist.get_rank()
    tensor = (
        torch.tensor([1, 2], dtype=dtype, device=accelerator.device(accelerator.current_device())) * scale
    )
    try:
        result = operation(tensor)
    except Exception as error:
        answer[name] = f"{type(error).__name__}: {error}"
        return
    accelerator.synchronize()
    answer[name] = result.tolist() if isinstance(result, torch.Tensor) else result


def _all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


def _all_reduce_max(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor


def _asynchronous_all_reduce(tensor: torch.Tensor) -> torch.Tensor:
    pending = dist.all_reduce(tensor, async_op=True)
    assert pending is not None
    pending.wait()
    return tensor


def _broadcast(tensor: torch.Tensor) -> torch.Tensor:
    dist.broadcast(tensor, src=1)
    return tensor


def _all_gather_into_tensor(tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.new_zeros(4)
    dist.all_gather_into_tensor(result, tensor)
    return result


def _reduce_scatter_tensor(tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.new_zeros(1)
    dist.reduce_scatter_tensor(result, tensor)
    return result


def _all_to_all_single(tensor: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(tensor)
    dist.all_to_all_single(result, tensor)
    return result


def _send_and_receive(tensor: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 1:
        dist.send(tensor, dst=0)
    else:
        dist.recv(tensor, src=1)
    return tensor


def _all_gather_object(tensor: torch.Tensor) -> list[str]:
    texts: list[Any] = [None, None]
    dist.all_gather_object(texts, f"rank {dist.get_rank()}")
    return texts


def _barrier(folder: Path) -> dict[str, float]:
    entering, leaving = folder / "entering", folder / "leaving"
    if dist.get_rank() == 1:
        _wait_for(entering, _LIMIT)
        _wait_for(leaving, 0.5)  # rank 0 waits for this one here, if the barrier is one
    entered = time.monotonic()  # of all processes of the machine
    entering.touch()
    dist.barrier()
    left = time.monotonic()
    leaving.touch()
    return {"entered": entered, "left": left}


def _wait_for(file: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.01)


_OPERATIONS: dict[str, Operation] = {
    "all_reduce_max": _all_reduce_max,
    "asynchronous_all_reduce": _asynchronous_all_reduce,
    "broadcast": _broadcast,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all_single": _all_to_all_single,
    "send_and_receive": _send_and_receive,
    "all_gather_object": _all_gather_object,
}
