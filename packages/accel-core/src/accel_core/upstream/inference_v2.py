# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Buffers of `deepspeed.inference.v2`'s modules on devices that have no number in torch.

Its modules allocate with `device=get_accelerator().current_device()`, a number, which torch reads as a device of the
one accelerator that it was built for. There is none for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from accel_core.upstream import contract

if TYPE_CHECKING:
    import torch


class _WithNamedDevice:
    """An accelerator whose `current_device()` is a torch.device."""

    def __init__(self, accel: Any) -> None:
        self._accel = accel

    def current_device(self) -> torch.device:
        import torch  # this module is imported with accel_core, which needs none

        return torch.device(self._accel.current_device_name())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accel, name)


def join(module: ModuleType, current: Callable[[], Any]) -> None:
    """Replace the `get_accelerator` that the module, just imported, has bound; it asks for the device only."""
    if contract.is_registered() and hasattr(module, "get_accelerator"):
        module.get_accelerator = lambda: _WithNamedDevice(current())  # type: ignore[attr-defined]
