# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The state of the simulation in this process: which vendor, with which settings, under which module."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from accel_testkit.sim.settings import Settings
from accel_testkit.sim.vendors import SimVendor


@dataclass
class Simulation:
    """The device that this process simulates.

    native:    the compiled extension module.
    devices:   number of visible devices.
    module:    the vendor's device module, `torch.<type>`.
    simulated: what the module's functions and classes do, by name; the rest of its surface raises NotSimulated.
    """

    vendor: SimVendor
    settings: Settings
    native: Any
    devices: int
    module: ModuleType
    simulated: dict[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """torch's device type."""
        return self.vendor.key


_current: Simulation | None = None


def current() -> Simulation | None:
    """Return the simulation of this process, None where there is none."""
    return _current


def set_current(simulation: Simulation) -> None:
    """Keep the simulation of this process; only `activation.activate` calls this."""
    global _current
    _current = simulation
