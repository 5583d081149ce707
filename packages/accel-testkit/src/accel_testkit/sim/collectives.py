# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendor's backend of torch.distributed: gloo on the host memory of the device's tensors."""

from __future__ import annotations

from typing import Any

from accel_testkit.sim.simulation import Simulation


def register(simulation: Simulation) -> None:
    """Register the backend under the vendor's name."""
    import torch.distributed as dist

    if not dist.is_available() or simulation.vendor.collectives == "gloo":
        return

    def create(options: Any, _backend_options: Any = None) -> Any:
        gloo = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
        return simulation.native.make_backend(gloo, simulation.vendor.collectives)

    dist.Backend.register_backend(
        simulation.vendor.collectives, create, extended_api=True, devices=[simulation.type]
    )
