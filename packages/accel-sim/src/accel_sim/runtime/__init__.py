# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of a device module (`torch.npu.memory_allocated`, …), once for all vendors, one module a subject."""

from __future__ import annotations

from typing import Any

import torch

from accel_sim.runtime import (
    bindings,
    device,
    dtypes,
    graphs,
    hpu,
    lazy,
    memory,
    npu,
    random,
    streams,
)
from accel_sim.runtime.device import Indices
from accel_sim.simulation import Simulation

#: Of two definitions of a name the later one is used; the vendors' own overrides are the last.
_PARTS = (lazy, bindings, device, random, streams, memory, dtypes, graphs)


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return everything that is simulated, by its name in the vendor's module."""
    names: dict[str, Any] = {}
    for part in _PARTS:
        names.update(part.exports(simulation))
    names.update(_overrides(simulation))
    return {**names, **lazy.initializing(simulation, names)}


def _overrides(simulation: Simulation) -> dict[str, Any]:
    """Return the names whose behaviour is the vendor's own; they replace those of the other modules."""
    override = {"npu": npu.exports, "hpu": hpu.exports, "xpu": _xpu, "mps": _mps}.get(simulation.type)
    ranges = {"range_push": _nothing, "range_pop": _nothing, "mark": _nothing}
    emulation = {"is_bf16_supported": lambda including_emulation=True: simulation.devices > 0}
    asked = emulation if simulation.type in ("npu", "xpu", "cuda") else {}
    return {**ranges, **asked, **(override(simulation) if override else {})}


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """Do nothing: there is no profiler to mark ranges for."""


def _xpu(simulation: Simulation) -> dict[str, Any]:
    indices = Indices(simulation)

    def get_device_capability(device: Any = None) -> dict[str, Any]:
        indices.described(device)
        return dict(simulation.vendor.properties)

    return {"get_device_capability": get_device_capability}


def _mps(simulation: Simulation) -> dict[str, Any]:
    def used() -> int:
        return int(torch.accelerator.memory_allocated())

    return {
        "current_allocated_memory": used,
        "driver_allocated_memory": lambda: int(torch.accelerator.memory_reserved()),
        "recommended_max_memory": lambda: simulation.settings.memory,
        "set_per_process_memory_fraction": _nothing,
    }
