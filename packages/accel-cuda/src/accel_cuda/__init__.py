# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CUDA and ROCm devices as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_cuda.accelerator import CUDA_Accelerator

__all__ = ["CUDA_Accelerator"]

__getattr__ = lazy_exports(__name__, {"CUDA_Accelerator": "accelerator"})
