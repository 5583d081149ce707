# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a device's kernels: FAULT=<operator>:<kind>:<first call> replaces the kernel of the simulated device.

The first wrong call writes its step into the file STRUCK.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import torch
from torch.utils._pytree import tree_map_only

_kept: list[torch.library.Library] = []


def _first(results: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(results, torch.Tensor):
        return change(results)
    return (change(results[0]), *results[1:])


def _last_zero(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[-1] = changed.abs().max()
    return changed


def _one_nan(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[changed.numel() // 2] = float("nan")
    return changed


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scale": lambda tensor: tensor * 1.001,
    "tiny": lambda tensor: tensor * (1 + 1e-7),
    "truncated": lambda tensor: tensor.bfloat16().to(tensor.dtype),
    "last": _last_zero,
    "nan": _one_nan,
    "shifted": lambda tensor: tensor.roll(1, -1),
    "sign": torch.neg,
}


def plant(device: str) -> None:
    """Replace the kernel that FAULT names on a device; the CPU has no fault."""
    if device == "cpu" or not os.environ.get("FAULT"):
        return
    name, kind, first = os.environ["FAULT"].split(":")
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    calls = 0

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        here = tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), (args, kwargs))
        results = operator(*here[0], **here[1])
        if calls > int(first):
            results = _first(results, KINDS[kind])
            if calls == int(first) + 1 and os.environ.get("STRUCK"):
                Path(os.environ["STRUCK"]).write_text(str(models.step), encoding="utf-8")
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), results)

    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, torch._C._dispatch_key_for_device(device))
    _kept.append(library)
