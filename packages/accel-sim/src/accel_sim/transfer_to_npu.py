# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`import torch_npu.contrib.transfer_to_npu`: programs that say cuda run on npu.

As the real one, it lets torch.cuda's names be torch.npu's, reads `cuda` in a device argument as npu, and nccl as hccl.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

from accel_sim.simulation import Simulation

_DEVICES = ("device", "device_type", "map_location", "device_id")
_TENSOR = (
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_tensor",
    "new_zeros",
    "to",
    "pin_memory",
)
_MORE = ("load", "set_default_device", "rand_like", "randn_like", "randint_like", "ones_like", "zeros_like",
         "full_like", "empty_like", "get_device_module")  # fmt: skip
_DONE = "_accel_transferred"


def transfer(simulation: Simulation) -> None:
    """Do it, once a process."""
    if getattr(torch, _DONE, False):
        return
    setattr(torch, _DONE, True)
    module: Any = simulation.module
    for name in dir(torch.cuda):
        if not name.startswith("__") and hasattr(module, name):
            setattr(torch.cuda, name, getattr(module, name))
    constructors = {function.__name__ for function in _device._device_constructors()}
    for name in (*constructors, *_MORE):
        _wrap(torch, name, _npu)
    for name in _TENSOR:
        _wrap(torch.Tensor, name, _npu)
    for name in ("to", "to_empty"):
        _wrap(torch.nn.Module, name, _npu)
    kinds: tuple[Any, ...] = (torch.Tensor, torch.nn.Module)
    for kind in kinds:
        kind.cuda = kind.npu
    kinds[0].is_cuda = kinds[0].is_npu
    _wrap(torch.distributed, "init_process_group", _hccl)
    _wrap(torch.distributed, "new_group", _hccl)
    _wrap(torch.autocast, "__init__", _npu)


def _wrap(owner: Any, name: str, changed: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        given = {
            key: changed(value) if key in (*_DEVICES, "backend") else value for key, value in options.items()
        }
        return original(*map(changed, arguments), **given)

    setattr(owner, name, call)


def _npu(value: Any) -> Any:
    if isinstance(value, str) and "cuda" in value:
        return value.replace("cuda", "npu")
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("npu", value.index) if value.index is not None else torch.device("npu")
    return value


def _hccl(value: Any) -> Any:
    return _npu(value.replace("nccl", "hccl")) if isinstance(value, str) else value
