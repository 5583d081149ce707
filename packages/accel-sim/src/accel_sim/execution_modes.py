# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Modes of a simulated device: race and deferred mode check the order of work, the hardware-like one the rest."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from accel_sim.settings import Settings
from accel_sim.vendors import SimVendor

#: Methods that read a host tensor's memory without calling an operator.
READERS = ("numpy", "tolist")


#: Bytes of a device that others use, in hardware-like mode: its runtime, and another process.
_OTHERS = 600 << 20


def enable(native: Any, vendor: SimVendor, settings: Settings) -> None:
    """Enable the modes that the settings ask for."""
    native.enable_modes(settings.race, settings.deferred)
    if settings.like_hardware:
        native.model_memory(min(_OTHERS, settings.memory // 8), vendor.padding, vendor.arena)
        native.enable_hardware()
    if settings.race:
        here = Path(__file__)
        native.hide_frames([f"{Path(torch.__file__).parent}/", f"{here.parent / 'runtime'}/", str(here)])
        for name in READERS:
            setattr(torch.Tensor, name, _watched(native, name))


@contextlib.contextmanager
def deferred(native: Any, settings: Settings) -> Iterator[None]:
    """Inside, asynchronous copies complete as late as the order of work allows; afterwards all are complete."""
    if settings.deferred:
        yield
        return
    native.set_deferred(True, settings.race)
    try:
        yield
    finally:
        native.set_deferred(False, settings.race)


def _watched(native: Any, name: str) -> Any:
    original = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def read(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if type(self) in (torch.Tensor, torch.nn.Parameter):
            native.host_reads(f"Tensor.{name}", self)
        return original(self, *arguments, **options)

    return read
