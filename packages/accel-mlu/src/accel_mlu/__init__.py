# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Cambricon MLU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_mlu.accelerator import MLU_Accelerator

__all__ = ["MLU_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "MLU_Accelerator":
        from accel_mlu.accelerator import MLU_Accelerator

        return MLU_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
