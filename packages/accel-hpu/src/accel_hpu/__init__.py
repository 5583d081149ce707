# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel Gaudi as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_hpu.accelerator import HPU_Accelerator

__all__ = ["HPU_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "HPU_Accelerator":
        from accel_hpu.accelerator import HPU_Accelerator

        return HPU_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
