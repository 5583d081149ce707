# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the launchers of all devices know about kernels: how one is started, and the C values of its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

#: launch(kernel, blocks, threads of a block, values in the order of the kernel's arguments). The kernel starts on the
#: current stream of the first value's device.
Launch = Callable[[str, int, int, tuple[Any, ...]], None]
#: lack(tensor): why the device's kernels cannot be used for it at the moment; empty if they can.
Lack = Callable[[torch.Tensor], str]


def packed(kinds: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Return the array of pointers that drivers take, and the C values that it points to; keep both for the call."""
    values = [_value(kind, given) for kind, given in zip(kinds, arguments, strict=True)]
    return (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)), values


def _value(kind: Any, given: Any) -> Any:
    if isinstance(given, ctypes.Structure):
        return given
    return kind(given.data_ptr() if isinstance(given, torch.Tensor) else given)
