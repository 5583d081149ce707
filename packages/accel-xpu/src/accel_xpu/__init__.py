# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_xpu.accelerator import XPU_Accelerator

__all__ = ["XPU_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "XPU_Accelerator":
        from accel_xpu.accelerator import XPU_Accelerator

        return XPU_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
