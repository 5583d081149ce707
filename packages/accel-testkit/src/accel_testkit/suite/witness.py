# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tensors that show whether somebody waited: filled by copies that finish long after the call that started them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_sim import current, execution_modes

_SIZE = 1024
_VALUE = 7.0
#: Work that a real device has for 10 ms or more before each copy; products of zeros take as long as others.
_PRODUCTS = 40
_EDGE = 2048


@contextlib.contextmanager
def late_copies() -> Iterator[None]:
    """Inside, asynchronous copies of a simulated device complete as late as the order of work allows."""
    simulation = current()
    if simulation is None:
        yield
        return
    with execution_modes.deferred(simulation.native, simulation.settings):
        yield


class Witness:
    """A device tensor of one index, and page-locked memory of the host.

    `read` starts a copy to the host, `write` one from it. Both go to the current stream of the tensor's device, behind
    work that takes a while on a real device.
    """

    def __init__(self, accelerator: DeepSpeedAccelerator, index: int | None = None) -> None:
        place = accelerator.device(accelerator.current_device() if index is None else index)
        self.device_tensor = torch.zeros(_SIZE, device=place)
        self._busy = current() is None and self.device_tensor.device.type != "cpu"
        self._filled = torch.full((_SIZE,), _VALUE, device=place)
        self._operand = torch.zeros(_EDGE, _EDGE, device=place) if self._busy else self._filled
        self._source = accelerator.pin_memory(torch.full((_SIZE,), _VALUE))
        self._sink = accelerator.pin_memory(torch.zeros(_SIZE))
        accelerator.synchronize()
        torch.zeros(1, device=place).item()  # whatever synchronize() does

    def read(self) -> None:
        """Start a copy from the device into the host's memory."""
        self._work()
        self._sink.copy_(self._filled, non_blocking=True)

    def write(self) -> None:
        """Start a copy from the host's memory into `device_tensor`."""
        self._work()
        self.device_tensor.copy_(self._source, non_blocking=True)

    def overwrite(self) -> None:
        """Start a fill of what `read` copies."""
        self._filled.fill_(0)

    def has_arrived(self) -> bool:
        """Return whether the host's memory holds the numbers; reading it calls no operator, which might wait."""
        return self._sink.tolist() == [_VALUE] * _SIZE

    def sum_was_right(self, total: torch.Tensor) -> bool:
        """Return whether a sum of `device_tensor`, taken on the device, was taken after the copy."""
        return total.item() == _VALUE * _SIZE

    def _work(self) -> None:
        if self._busy:
            for _ in range(_PRODUCTS):
                torch.mm(self._operand, self._operand)
