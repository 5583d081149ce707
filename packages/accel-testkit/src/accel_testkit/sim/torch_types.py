# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What torch itself must be told about a simulated device type."""

from __future__ import annotations

from typing import Any

import torch

from accel_testkit.sim.simulation import Simulation


def before(simulation: Simulation) -> None:
    """Before the module has its names."""


def after(simulation: Simulation) -> None:
    """After the module is registered: methods like `Tensor.npu()`."""
    if simulation.vendor.claims:
        torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=_not_stored())
    simulation.module.__dict__.setdefault("_is_in_bad_fork", _never)


def _not_stored() -> list[Any]:
    return [torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8]


def _never() -> bool:
    return False
