# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Huawei Ascend NPU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_npu.accelerator import NPU_Accelerator

__all__ = ["NPU_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "NPU_Accelerator":
        from accel_npu.accelerator import NPU_Accelerator

        return NPU_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
