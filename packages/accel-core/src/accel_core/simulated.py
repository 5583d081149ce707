# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Simulated device of this process. The simulator registers it; the test kit reads it without a simulator installed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from accel_core.env import Variable

DEVICE = Variable("ACCEL_SIM", "", "The device that this process simulates; set by `accel sim`.")

RUNTIME = Variable(
    "ACCEL_SIM_RUNTIME", "", "The vendor's own runtime on an emulated driver; set by `accel sim --runtime`."
)


class SimulatedDevice(Protocol):
    """Device that a simulator offers in place of a vendor's."""

    @property
    def type(self) -> str:
        """Return the torch device type, which is the vendor key."""
        ...

    @property
    def computes_as_host(self) -> bool:
        """Return whether results equal those of the CPU to the last bit."""
        ...

    def late_copies(self) -> AbstractContextManager[None]:
        """Complete asynchronous copies inside as late as the order of work allows."""
        ...


_device: SimulatedDevice | None = None


def register(device: SimulatedDevice) -> None:
    """Set the simulated device of this process."""
    global _device
    _device = device


def current() -> SimulatedDevice | None:
    """Return the simulated device of this process, or None on real hardware."""
    return _device
