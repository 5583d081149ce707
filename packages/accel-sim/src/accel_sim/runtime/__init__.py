# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of a device module (`torch.npu.memory_allocated`, …), once for all vendors, one module a subject."""

from __future__ import annotations

from typing import Any

from accel_sim.runtime import (
    amp,
    bindings,
    device,
    dtypes,
    graphs,
    lazy,
    memory,
    random,
    streams,
    vendor_overrides,
)
from accel_sim.simulation import Simulation

#: Of two definitions of a name the later one is used.
_PARTS = (lazy, bindings, device, random, streams, memory, dtypes, amp, graphs, vendor_overrides)


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return everything that is simulated, by its name in the vendor's module."""
    names: dict[str, Any] = {}
    for part in _PARTS:
        names.update(part.exports(simulation))
    return {**names, **lazy.initializing(simulation, names)}
