# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what a Biren GPU cannot do, or this package does not implement."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Feature, Trait

TRAITS: dict[str, Trait] = {
    **cuda_only(),
    Feature.UNTOUCHED_ENVIRONMENT: Trait.unsupported("torch_supa sets IS_CUSTOM_DEVICE_BACKEND_IMPORTED"),
}
