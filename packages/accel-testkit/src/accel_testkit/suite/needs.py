# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The traits that checks made by rule are skipped for: methods and ops as parameters, each with what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

#: Method or constructor -> the trait without which it tells no devices apart, or makes no tensor.
TRAITS = {
    "current_stream": "streams",
    "default_stream": "streams",
    "memory_reserved": "reserved_memory",
    "max_memory_reserved": "reserved_memory",
    "memory_cached": "reserved_memory",
    "max_memory_cached": "reserved_memory",
    "reset_max_memory_cached": "reserved_memory",
    "BFloat16Tensor": "bf16",
    "DoubleTensor": "fp64",
}


def methods(names: Iterable[str]) -> list[Any]:
    """Return names of methods as parameters."""
    return [
        pytest.param(name, marks=pytest.mark.needs(TRAITS[name]) if name in TRAITS else ()) for name in names
    ]


def ops(names: Iterable[str]) -> list[Any]:
    """Return names of builders as parameters; the vendor may declare that it lacks the op."""
    return [pytest.param(name, marks=pytest.mark.needs(name)) for name in names]
