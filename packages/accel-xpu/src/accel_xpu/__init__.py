# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_xpu.accelerator import XPU_Accelerator

__all__ = ["XPU_Accelerator"]

__getattr__ = lazy_exports(__name__, {"XPU_Accelerator": "accelerator"})
