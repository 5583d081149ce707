# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names of a vendor's packages outside its device module: versions, steps of lazy mode, type queries."""

from __future__ import annotations

from typing import Any

from accel_sim import habana_optimizers, ops
from accel_sim.simulation import Simulation


def exports(simulation: Simulation, package: str) -> dict[str, Any]:
    """Return the simulated names of a vendor's package, by the last part of the name."""
    if package.startswith("habana_frameworks"):
        return _habana()
    return ops.packets(simulation) if package == "torch_npu" else {}


def _habana() -> dict[str, Any]:
    class synDeviceType:
        """Generations of the device."""

        synDeviceGaudi, synDeviceGaudi2, synDeviceGaudi3 = 1, 4, 5

    return {
        "synDeviceType": synDeviceType,
        "_get_device_type": lambda: synDeviceType.synDeviceGaudi3,
        "_is_fp16_supported": lambda: True,
        "mark_step": lambda *_a, **_k: None,
        "_mark_step_if_lazy": lambda *_a, **_k: None,
        "initialize_distributed_hpu": lambda: _ranks(),
        "FusedAdamW": habana_optimizers.FusedAdamW,
        "FusedLamb": habana_optimizers.FusedLamb,
    }


def _ranks() -> tuple[int, int, int]:
    import os

    return tuple(int(os.environ.get(name, default)) for name, default in
                 (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0")))  # type: ignore[return-value]  # fmt: skip
