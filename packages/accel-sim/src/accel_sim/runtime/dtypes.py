# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data types, typed tensor classes, and mixed precision: torch's own, for the vendor's device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from accel_sim.errors import raise_not_simulated
from accel_sim.simulation import Simulation

TENSORS = {
    "BFloat16Tensor": torch.bfloat16, "BoolTensor": torch.bool, "ByteTensor": torch.uint8,
    "CharTensor": torch.int8, "DoubleTensor": torch.float64, "FloatTensor": torch.float32,
    "HalfTensor": torch.float16, "IntTensor": torch.int32, "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}  # fmt: skip


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    kind = simulation.type
    return {
        "is_bf16_supported": lambda: simulation.devices > 0,
        "is_bf16_available": lambda: simulation.devices > 0,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16, torch.float32],
        "get_autocast_dtype": lambda: torch.get_autocast_dtype(kind),
        "is_autocast_enabled": lambda: torch.is_autocast_enabled(kind),
        "set_autocast_dtype": lambda dtype: torch.set_autocast_dtype(kind, dtype),
        "set_autocast_enabled": lambda enable: torch.set_autocast_enabled(kind, enable),
        **{name: _tensor_class(name, dtype, kind) for name, dtype in TENSORS.items()},
        **_amp(simulation),
    }


class _TensorType(type):
    """`torch.npu.FloatTensor`: a call creates a tensor, isinstance compares dtype and device, `x.type()` takes it."""

    dtype: torch.dtype
    kind: str

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return cls.__qualname__

    def __call__(cls, *arguments: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = torch.empty(0, dtype=cls.dtype, device=cls.kind).new(*arguments, **options)
        return made

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == cls.dtype and value.device.type == cls.kind


def _tensor_class(name: str, dtype: torch.dtype, kind: str) -> type:
    # `x.type()` reads the name in C, and expects the module in it.
    own = {"dtype": dtype, "kind": kind, "__module__": f"torch.{kind}", "__qualname__": name}
    return _TensorType(f"torch.{kind}.{name}", (), own)


_WITH_AMP = ("npu", "mlu", "supa")


def _amp(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds; torch.cuda.amp is torch's own already."""
    if simulation.type not in _WITH_AMP:
        return {}
    kind = simulation.type
    precision: Any = torch.amp

    class autocast(torch.amp.autocast_mode.autocast):
        """torch.autocast for this device."""

        def __init__(
            self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
        ) -> None:
            super().__init__(kind, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    class GradScaler(torch.amp.GradScaler):
        """torch's GradScaler for this device."""

        def __init__(self, *numbers: Any, **options: Any) -> None:
            if kind == "npu":  # torch_npu has `dynamic` before `enabled`
                if not numbers[4]:
                    raise_not_simulated(f"torch.{kind}.amp.GradScaler(dynamic=False)")
                numbers = (*numbers[:4], *numbers[5:])
            super().__init__(kind, *numbers, **options)

    return {
        "autocast": autocast,
        "GradScaler": GradScaler,
        "custom_fwd": functools.partial(precision.custom_fwd, device_type=kind),
        "custom_bwd": functools.partial(precision.custom_bwd, device_type=kind),
        "amp_definitely_not_available": lambda: simulation.devices == 0,
    }
