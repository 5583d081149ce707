# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Huawei Ascend NPU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_npu.accelerator import NPU_Accelerator

__all__ = ["NPU_Accelerator"]

__getattr__ = lazy_exports(__name__, {"NPU_Accelerator": "accelerator"})
