# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Cambricon MLU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_mlu.accelerator import MLU_Accelerator

__all__ = ["MLU_Accelerator"]

__getattr__ = lazy_exports(__name__, {"MLU_Accelerator": "accelerator"})
