# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Specs of the functions of ops: what the checks of ops are made of."""

from __future__ import annotations

from accel_testkit.suite.ops import attention, inference, optimizers, quantizers, torch_fallbacks
from accel_testkit.suite.ops.spec import OpSpec

#: Every function that has samples.
SPECS: tuple[OpSpec, ...] = (
    *optimizers.SPECS, *inference.SPECS, *attention.SPECS, *torch_fallbacks.SPECS, *quantizers.SPECS,
)  # fmt: skip


def of_builder(name: str) -> list[OpSpec]:
    """Return the specs of a builder."""
    return [spec for spec in SPECS if spec.builder == name]
