# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kunlunxin XPUs as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_klxpu.accelerator import KLXPU_Accelerator

__all__ = ["KLXPU_Accelerator"]

__getattr__ = lazy_exports(__name__, {"KLXPU_Accelerator": "accelerator"})
