# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Apple GPU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_mps.accelerator import MPS_Accelerator

__all__ = ["MPS_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "MPS_Accelerator":
        from accel_mps.accelerator import MPS_Accelerator

        return MPS_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
