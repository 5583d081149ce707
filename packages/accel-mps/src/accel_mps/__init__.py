# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Apple GPU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_mps.accelerator import MPS_Accelerator

__all__ = ["MPS_Accelerator"]

__getattr__ = lazy_exports(__name__, {"MPS_Accelerator": "accelerator"})
