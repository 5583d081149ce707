# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The collective operations that DeepSpeed uses, from [1, 2] on rank 0 and [10, 20] on rank 1.

Where the backend is gloo, which has host tensors too, further ones are done on the device and on the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._pytree import tree_leaves

Operation = Callable[[torch.Tensor], Any]
#: Guards against a hang, in seconds.
_LIMIT = 60.0


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Run every operation; put what this rank holds after each, or the error's text, into the answer."""
    answer["world"] = dist.get_world_size()
    answer["device"] = accelerator.current_device()
    place = accelerator.device(accelerator.current_device())
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        name = f"all_reduce_{str(dtype).partition('.')[2]}"
        answer[name] = _outcome(accelerator, partial(_in_place, dist.all_reduce), place, dtype)
    for name, operation in OPERATIONS.items():
        answer[name] = _outcome(accelerator, operation, place)
    if dist.get_backend() == "gloo":
        for name, operation in OF_GLOO.items():
            for where, device in (("host", torch.device("cpu")), ("device", place)):
                answer[f"{name} on the {where}"] = _outcome(accelerator, operation, device)
    answer["barrier"] = _barrier(folder)


def _outcome(
    accelerator: Any, operation: Operation, place: torch.device, dtype: torch.dtype = torch.float32
) -> Any:
    tensor = torch.tensor([1, 2], dtype=dtype, device=place) * 10 ** dist.get_rank()
    try:
        result = operation(tensor)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    accelerator.synchronize()
    if isinstance(result, list):
        return [part.tolist() if isinstance(part, torch.Tensor) else part for part in result]
    return result.tolist()


def _in_place(function: Callable[..., Any], tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    pending = function(tensor, **options)
    if options.get("async_op"):
        pending.wait()
    return tensor


def _into(function: Callable[..., Any], size: int, tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.new_zeros(size)
    function(result, tensor)
    return result


def _together(function: Callable[..., Any], size: int, tensor: torch.Tensor) -> list[torch.Tensor]:
    """Do an operation twice in one call of the backend."""
    results = [tensor.new_zeros(size) for _ in range(2)]
    together: Any = dist._coalescing_manager  # type: ignore[attr-defined]
    with together(device=tensor.device):
        for result in results:
            function(result, tensor)
    return results


def _from_rank_1(receive: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 1:
        dist.send(tensor, dst=0)
    else:
        receive(tensor)
    return tensor


def _all_gather_object(tensor: torch.Tensor) -> list[Any]:
    texts: list[Any] = [None, None]
    dist.all_gather_object(texts, f"rank {dist.get_rank()}")
    return texts


def _all_reduce_of_mesh(tensor: torch.Tensor) -> torch.Tensor:
    mesh = init_device_mesh(tensor.device.type, (1, 2), mesh_dim_names=("sequence", "data"))
    return _in_place(dist.all_reduce, tensor, group=mesh.get_group("data"))


OPERATIONS: dict[str, Operation] = {
    "all_reduce_max": lambda tensor: _in_place(dist.all_reduce, tensor, op=dist.ReduceOp.MAX),
    "asynchronous_all_reduce": lambda tensor: _in_place(dist.all_reduce, tensor, async_op=True),
    "broadcast": lambda tensor: _in_place(dist.broadcast, tensor, src=1),
    "all_gather_into_tensor": lambda tensor: _into(dist.all_gather_into_tensor, 4, tensor),
    "reduce_scatter_tensor": lambda tensor: _into(dist.reduce_scatter_tensor, 1, tensor),
    "all_to_all_single": lambda tensor: _into(dist.all_to_all_single, 2, tensor),
    "send_and_receive": lambda tensor: _from_rank_1(lambda mine: dist.recv(mine, src=1), tensor),
    "all_gather_object": _all_gather_object,
    "all_reduce of a device mesh": _all_reduce_of_mesh,
}


def _in(results: list[Any], operation: Callable[[Any], Any]) -> list[torch.Tensor]:
    """Do an operation that writes into tensors, or lists of them; return the tensors."""
    operation(results)
    leaves: list[torch.Tensor] = tree_leaves(results)
    return leaves


def _on_rank_1(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return tensors if dist.get_rank() == 1 else []


OF_GLOO: dict[str, Operation] = {
    "all_gather": lambda t: _in([t * 0, t * 0], lambda parts: dist.all_gather(parts, t)),
    "all_gather_coalesced": lambda t: _in([[t * 0], [t * 0]], lambda parts: dist.all_gather_coalesced(parts, [t])),
    "all_gather_into_tensor, several at once": lambda t: _together(dist.all_gather_into_tensor, 4, t),
    "all_reduce_coalesced": lambda t: _in([t, t * 2], dist.all_reduce_coalesced),
    # What rank 0 holds: the tensor of rank 1 is anything.
    "reduce": lambda t: _in([t], lambda one: dist.reduce(one[0], dst=0))[dist.get_rank():],
    "reduce_scatter": lambda t: _into(lambda result, mine: dist.reduce_scatter(result, list(mine.split(1))), 1, t),
    "reduce_scatter_tensor, several at once": lambda t: _together(dist.reduce_scatter_tensor, 1, t),
    "gather": lambda t: _in(_on_rank_1([t * 0, t * 0]), lambda parts: dist.gather(t, parts or None, dst=1)),
    "scatter": lambda t: _into(
        lambda result, mine: dist.scatter(result, _on_rank_1(list(mine.split(1))) or None, src=1), 1, t
    ),
    "all_to_all": lambda t: _in(list((t * 0).split(1)), lambda parts: dist.all_to_all(parts, list(t.split(1)))),
    "recv from anyone": lambda t: _from_rank_1(dist.recv, t),
}  # fmt: skip


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
