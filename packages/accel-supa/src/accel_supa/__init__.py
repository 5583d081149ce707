# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Biren GPUs as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_supa.accelerator import SUPA_Accelerator

__all__ = ["SUPA_Accelerator"]

__getattr__ = lazy_exports(__name__, {"SUPA_Accelerator": "accelerator"})
