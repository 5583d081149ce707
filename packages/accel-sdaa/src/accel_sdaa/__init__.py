# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tecorigin SDAA as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_sdaa.accelerator import SDAA_Accelerator

__all__ = ["SDAA_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "SDAA_Accelerator":
        from accel_sdaa.accelerator import SDAA_Accelerator

        return SDAA_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
