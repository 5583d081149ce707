# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU as a DeepSpeed accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_cpu.accelerator import CPU_Accelerator
    from accel_cpu.backends import register_backend

__all__ = ["CPU_Accelerator", "register_backend"]

__getattr__ = lazy_exports(__name__, {"CPU_Accelerator": "accelerator", "register_backend": "backends"})
