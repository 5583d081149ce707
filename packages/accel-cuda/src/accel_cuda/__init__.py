# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CUDA and ROCm devices as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_cuda.accelerator import CUDA_Accelerator

__all__ = ["CUDA_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "CUDA_Accelerator":
        from accel_cuda.accelerator import CUDA_Accelerator

        return CUDA_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
