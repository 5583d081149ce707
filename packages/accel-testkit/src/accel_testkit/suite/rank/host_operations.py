# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Operations of torch.distributed on a device tensor and on one of the host, through gloo, which has both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def compare(accelerator: Any, answer: dict[str, Any]) -> None:
    """Put what each operation leaves on the device and on the host into the answer, or the errors' texts.

    Other backends have no host tensors: nothing is put.
    """
    if dist.get_backend() != "gloo":
        return
    place = accelerator.device(accelerator.current_device())
    for name, operation in OPERATIONS.items():
        for where, device in (("host", torch.device("cpu")), ("device", place)):
            answer[f"{name} on the {where}"] = _outcome(operation, device)


def _outcome(operation: Callable[[torch.Tensor], Any], device: torch.device) -> Any:
    tensor = torch.tensor([1.0, 2.0], device=device) * 10 ** dist.get_rank()
    try:
        found = operation(tensor)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [part.tolist() for part in found]


def _all_gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.zeros_like(tensor) for _ in range(2)]
    dist.all_gather(parts, tensor)
    return parts


def _all_gather_coalesced(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [[torch.zeros_like(tensor)] for _ in range(2)]
    dist.all_gather_coalesced(parts, [tensor])
    return [part for list_of_rank in parts for part in list_of_rank]


def _all_gather_together(tensor: torch.Tensor) -> list[torch.Tensor]:
    results = [tensor.new_zeros(4) for _ in range(2)]
    together: Any = dist._coalescing_manager  # type: ignore[attr-defined]
    with together(device=tensor.device):
        for result in results:
            dist.all_gather_into_tensor(result, tensor)
    return results


def _all_reduce_coalesced(tensor: torch.Tensor) -> list[torch.Tensor]:
    tensors = [tensor, tensor * 2]
    dist.all_reduce_coalesced(tensors)
    return tensors


def _reduce(tensor: torch.Tensor) -> list[torch.Tensor]:
    dist.reduce(tensor, dst=0)
    return [tensor] if dist.get_rank() == 0 else []  # the others' tensors are anything


def _reduce_scatter(tensor: torch.Tensor) -> list[torch.Tensor]:
    result = tensor.new_zeros(1)
    dist.reduce_scatter(result, list(tensor.split(1)))
    return [result]


def _reduce_scatter_together(tensor: torch.Tensor) -> list[torch.Tensor]:
    results = [tensor.new_zeros(1) for _ in range(2)]
    together: Any = dist._coalescing_manager  # type: ignore[attr-defined]
    with together(device=tensor.device):
        for result in results:
            dist.reduce_scatter_tensor(result, tensor)
    return results


def _gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.zeros_like(tensor) for _ in range(2)] if dist.get_rank() == 1 else []
    dist.gather(tensor, parts or None, dst=1)
    return parts


def _scatter(tensor: torch.Tensor) -> list[torch.Tensor]:
    result = tensor.new_zeros(1)
    dist.scatter(result, list(tensor.split(1)) if dist.get_rank() == 1 else None, src=1)
    return [result]


def _all_to_all(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [tensor.new_zeros(1) for _ in range(2)]
    dist.all_to_all(parts, list(tensor.split(1)))
    return parts


def _receive_from_anyone(tensor: torch.Tensor) -> list[torch.Tensor]:
    if dist.get_rank() == 1:
        dist.send(tensor, dst=0)
    else:
        dist.recv(tensor)
    return [tensor]


OPERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "all_gather": _all_gather,
    "all_gather_coalesced": _all_gather_coalesced,
    "all_gather_into_tensor, several at once": _all_gather_together,
    "all_reduce_coalesced": _all_reduce_coalesced,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor, several at once": _reduce_scatter_together,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "recv from anyone": _receive_from_anyone,
}
