# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel Gaudi as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_hpu.accelerator import HPU_Accelerator

__all__ = ["HPU_Accelerator"]

__getattr__ = lazy_exports(__name__, {"HPU_Accelerator": "accelerator"})
