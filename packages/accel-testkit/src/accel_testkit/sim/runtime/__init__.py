# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a device module does (`torch.npu.memory_allocated`, …): written once for all vendors, by room."""

from __future__ import annotations

from typing import Any

from accel_testkit.sim.runtime import device, dtypes, graphs, memory, random, streams, ways
from accel_testkit.sim.simulation import Simulation

#: Later rooms overrule earlier ones.
ROOMS = (device, random, streams, memory, dtypes, graphs, ways)


def offer(simulation: Simulation) -> dict[str, Any]:
    """Everything that is simulated, by its name in the vendor's module."""
    names: dict[str, Any] = {}
    for room in ROOMS:
        names.update(room.offer(simulation))
    return names
