# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The state of the simulation in this process: which vendor, with which settings, under which module."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from accel_core import simulated
from accel_sim.settings import Settings
from accel_sim.vendors import SimVendor


@dataclass
class Simulation:
    """The device that this process simulates.

    native:    the compiled extension module.
    physical:  the machine's numbers of the visible devices.
    module:    the vendor's device module, `torch.<type>`.
    simulated: what the module's functions and classes do, by name; the rest of its surface raises NotSimulated.
    """

    vendor: SimVendor
    settings: Settings
    native: Any
    physical: tuple[int, ...]
    module: ModuleType
    simulated: dict[str, Any] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """The number of visible devices."""
        return len(self.physical)

    @property
    def type(self) -> str:
        """Return the torch device type."""
        return self.vendor.type

    @property
    def computes_as_host(self) -> bool:
        """Return whether results equal those of the CPU to the last bit."""
        return not self.settings.like_hardware

    def late_copies(self) -> AbstractContextManager[None]:
        """Complete asynchronous copies inside as late as the order of work allows."""
        from accel_sim import execution_modes  # imports torch

        return execution_modes.deferred(self.native, self.settings)


_current: Simulation | None = None


def current() -> Simulation | None:
    """Return the simulation of this process, None where there is none."""
    return _current


def set_current(simulation: Simulation) -> None:
    """Keep the simulation of this process; only `activation.activate` calls this."""
    global _current
    _current = simulation
    simulated.register(simulation)
