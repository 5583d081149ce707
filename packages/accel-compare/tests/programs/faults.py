# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a device's kernels and of collectives.

FAULT=<operator>:<kind>:<first call> replaces the kernel of the simulated device.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

_kept: list[torch.library.Library] = []


def _first(results: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(results, torch.Tensor):
        return change(results)
    return (change(results[0]), *results[1:])


def _one_nan(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[changed.numel() // 2] = float("nan")
    return changed


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scale": lambda tensor: tensor * 1.001,
    "truncated": lambda tensor: tensor.bfloat16().to(tensor.dtype),
    "nan": _one_nan,
}


def plant(device: str) -> None:
    """Replace the kernel that FAULT names on a device; the CPU has no fault."""
    if device == "cpu" or not os.environ.get("FAULT"):
        return
    name, kind, first = os.environ["FAULT"].split(":")
    operator = getattr(torch.ops.aten, name).default
    calls = 0

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        here = tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), (args, kwargs))
        results = operator(*here[0], **here[1])
        if calls > int(first):
            results = _first(results, KINDS[kind])
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), results)

    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, torch._C._dispatch_key_for_device(device))
    _kept.append(library)


def replace_collective(name: str, function: Callable[..., Any]) -> None:
    """Replace a collective below the recorder, which has wrapped it; the function gets the collective first."""
    wrapped: Any = getattr(dist, name)
    inner = wrapped.__wrapped__
    cell = next(cell for cell in wrapped.__closure__ if cell.cell_contents is inner)
    cell.cell_contents = partial(function, inner)
