# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend accelerator with two devices."""

from __future__ import annotations

from typing import Any

__all__ = ["Toy_Accelerator"]


def __getattr__(name: str) -> Any:
    if name == "Toy_Accelerator":
        from accel_toy.accelerator import Toy_Accelerator

        return Toy_Accelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
