# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tecorigin SDAA as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_sdaa.accelerator import SDAA_Accelerator

__all__ = ["SDAA_Accelerator"]

__getattr__ = lazy_exports(__name__, {"SDAA_Accelerator": "accelerator"})
