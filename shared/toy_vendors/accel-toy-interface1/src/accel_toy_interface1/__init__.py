# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend accelerator with two devices."""

from __future__ import annotations

from accel_core.lazy import exports

__all__ = ["Toy1_Accelerator"]

__getattr__ = exports(__name__, {"Toy1_Accelerator": "accelerator"})
