# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend accelerator with two devices."""

from __future__ import annotations

from accel_core.vendor import lazy_exports

__all__ = ["Toy_Accelerator"]

__getattr__ = lazy_exports(__name__, {"Toy_Accelerator": "accelerator"})
