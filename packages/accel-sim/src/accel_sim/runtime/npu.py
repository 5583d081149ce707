# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""npu's own functions: options of its compiler, which change nothing here, and its runtime's handles."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from accel_sim.runtime.bindings import HostRegistrations
from accel_sim.simulation import Simulation

#: ACL_HOST_REG_MAPPED, and ACL_ERROR_RT_PARAM_INVALID.
_MAPPED, _REFUSED = 2, 107000

#: The values that torch_npu accepts for an option; for any other option it accepts every value.
_CHOICES = {
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ACL_OP_SELECT_IMPL_MODE": ("high_performance", "high_precision"),
    "ACL_AICORE_NUM": tuple(map(str, range(1, 33))),
    "ACL_OP_DEBUG_LEVEL": ("0", "1", "2", "3", "4"),
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
}


class _Switch:
    """`torch.npu.matmul` or `.conv`: whether float32 may be computed as HF32. Here it never is."""

    def __init__(self, allowed: bool) -> None:
        self.__dict__["allow_hf32"] = allowed

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "allow_hf32" and not isinstance(value, bool):
            raise TypeError(f"allow_hf32 must be a bool, but got {type(value).__name__}")
        self.__dict__[name] = value


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return npu's own names; they replace those of the other modules."""
    options: dict[str, str] = {}

    def set_option(option: dict[str, Any]) -> None:
        if not isinstance(option, dict):
            raise TypeError("npu option must be a dict.")
        for name, value in option.items():
            if name in _CHOICES and str(value) not in _CHOICES[name]:
                raise ValueError(f"value of {name} should be in {list(_CHOICES[name])} but got {value}")
        options.update({name: str(value) for name, value in option.items()})

    def set_compile_mode(jit_compile: bool = False) -> None:
        set_option({"jitCompile": "enable" if jit_compile else "disable"})

    def get_device_capability(device: Any = None) -> tuple[int, ...] | None:
        text = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
        return tuple(int(part) for part in text.split(".")) if text else None

    hosts = HostRegistrations(simulation.native)
    registry = SimpleNamespace(
        # MAPPED takes whole pages of 4096 bytes.
        npuHostRegister=lambda address, size, flags=0: (
            _REFUSED if flags & _MAPPED and address % 4096 else hosts.register(address, size, _REFUSED)
        ),
        npuHostUnregister=lambda address: hosts.unregister(address, _REFUSED),
    )
    return {
        "set_option": set_option,
        "set_compile_mode": set_compile_mode,
        "is_jit_compile_false": lambda: options.get("jitCompile") == "disable",
        "matmul": _Switch(allowed=False),
        "conv": _Switch(allowed=True),
        "get_device_capability": get_device_capability,
        "npurt": lambda: registry,
    }
