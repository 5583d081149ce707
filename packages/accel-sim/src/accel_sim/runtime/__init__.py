# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of a device module (`torch.npu.memory_allocated`, …), once for all vendors, one module a subject."""

from __future__ import annotations

from typing import Any

from accel_sim.runtime import device, dtypes, graphs, overrides, streams
from accel_sim.simulation import Simulation


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return everything that is simulated, by its name in the vendor's module."""
    names = overrides.bindings(simulation)
    # Of two definitions of a name the later one is used.
    for part in (device, streams, dtypes, graphs, overrides):
        names.update(part.exports(simulation))
    return {**names, **device.initializing(simulation, names)}
