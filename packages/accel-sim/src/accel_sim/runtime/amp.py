# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`torch.npu.amp` and `torch.mlu.amp`: torch's own mixed precision, for their device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from accel_sim.errors import raise_not_simulated
from accel_sim.simulation import Simulation

_VENDORS = ("npu", "mlu")


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds; torch.cuda.amp is torch's own already."""
    if simulation.type not in _VENDORS:
        return {}
    kind = simulation.type
    precision: Any = torch.amp

    class autocast(torch.amp.autocast_mode.autocast):
        """torch.autocast for this device."""

        def __init__(
            self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
        ) -> None:
            super().__init__(kind, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
        return precision.custom_fwd(fwd, device_type=kind, cast_inputs=cast_inputs)

    return {
        "autocast": autocast,
        "GradScaler": _scaler(kind),
        "custom_fwd": custom_fwd,
        "custom_bwd": functools.partial(precision.custom_bwd, device_type=kind),
        "amp_definitely_not_available": lambda: simulation.devices == 0,
    }


def _scaler(kind: str) -> type:
    names = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")

    class GradScaler(torch.amp.GradScaler):
        """torch's GradScaler for this device."""

        def __init__(
            self, *numbers: float, dynamic: bool = True, enabled: bool = True, **options: Any
        ) -> None:
            if kind != "npu" and (dynamic is not True or len(numbers) > len(names)):
                raise TypeError(f"GradScaler takes {', '.join(names)} and enabled")
            if not dynamic:
                raise_not_simulated("torch.npu.amp.GradScaler(dynamic=False)")
            super().__init__(kind, enabled=enabled, **{**dict(zip(names, numbers, strict=False)), **options})

    return GradScaler
