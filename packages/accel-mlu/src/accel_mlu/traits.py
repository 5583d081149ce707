# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an MLU cannot do, or this package does not implement: used by core, the conformance suite and docs."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Trait

TRAITS: dict[str, Trait] = {**cuda_only()}
