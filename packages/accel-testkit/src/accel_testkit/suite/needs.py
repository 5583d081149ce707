# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The methods of the interface and the ops that checks are made of by rule, each with the trait it is skipped for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator

#: Method or constructor -> the trait without which it tells no devices apart, or makes no tensor.
TRAITS = {
    **dict.fromkeys(("current_stream", "default_stream"), "streams"),
    **dict.fromkeys(("memory_reserved", "max_memory_reserved", "reset_max_memory_cached"), "reserved_memory"),
    **dict.fromkeys(("memory_cached", "max_memory_cached"), "reserved_memory"),
    "BFloat16Tensor": "bf16",
    "DoubleTensor": "fp64",
}


def public_members() -> dict[str, Any]:
    """Return the interface's own public members, by name, in alphabetical order."""
    classes = [
        cls for cls in DeepSpeedAccelerator.__mro__ if cls.__module__.startswith("accel_core.interface")
    ]
    members = {name: member for cls in reversed(classes) for name, member in vars(cls).items()}
    return {
        name: members[name] for name in sorted(members) if not name.startswith("_") and name != "host_pins"
    }


def two_devices(function: Callable[..., None]) -> Any:
    """Mark a check that needs two devices which have indices."""
    return pytest.mark.tier("multi")(pytest.mark.needs("indexed_devices")(function))


def methods(names: Iterable[str]) -> list[Any]:
    """Return names of methods as parameters."""
    return [
        pytest.param(name, marks=pytest.mark.needs(TRAITS[name]) if name in TRAITS else ()) for name in names
    ]


def ops(names: Iterable[str]) -> list[Any]:
    """Return names of builders as parameters; the vendor may declare that it lacks the op."""
    return [pytest.param(name, marks=pytest.mark.needs(name)) for name in names]


def types(accelerator: DeepSpeedAccelerator, *dtypes: torch.dtype) -> None:
    """Skip the check where the device lacks one of the types."""
    for dtype in dtypes:
        double = dtype is torch.float64 and accelerator.is_fp64_supported()
        if not double and dtype not in accelerator.supported_dtypes():
            pytest.skip(f"the device has no {str(dtype).removeprefix('torch.')}")
