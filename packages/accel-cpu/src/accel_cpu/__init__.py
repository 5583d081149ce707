# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_cpu.accelerator import CPU_Accelerator

__all__ = ["CPU_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "CPU_Accelerator":
        from accel_cpu.accelerator import CPU_Accelerator

        return CPU_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
