# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CUDA and ROCm: differences from other torch devices."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_cuda import nvml, ranges, visible
from accel_cuda.op_builder import TABLE
from accel_cuda.traits import NO_CAPABILITY, ROCM, TRAITS
from accel_cuda.vendor import DEPRECATED_FP16

_EXPORTED = ["NCCL", "TORCH_NCCL"]


class CUDA_Accelerator(TorchDeviceAccelerator):
    """NVIDIA and AMD GPUs, and cards whose torch has their interface, with torch.cuda and nccl (gloo on Windows)."""

    supports_nvtx_domain = True

    def __init__(self) -> None:
        collectives = "gloo" if sys.platform == "win32" else "nccl"
        traits = ROCM if torch.version.hip else TRAITS
        super().__init__(
            "cuda",
            collectives=collectives,
            ops=TABLE,
            traits=traits,
            device_module=torch.cuda,
            visible=visible.of_build(),
        )

    @override
    def is_available(self) -> bool:
        """Return whether there is a device; counts with NVML if installed, so that the process may fork afterwards."""
        return self.device_count() > 0

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        """Return the free memory in bytes; before there is a context, from NVML, which creates none."""
        if not torch.cuda.is_initialized():
            free = nvml.free_memory(device_index or 0)
            if free is not None:
                return free
        return super().available_memory(device_index)

    # ------------------------------------------------------------------------------------- dtypes

    def _capability(self) -> int:
        """Return the major compute capability, from NVML if possible, which creates no context.

        Return 0 if the card, of another maker, reports none; `traits` then says what is unknown.
        """
        reported = None if torch.cuda.is_initialized() else nvml.capability(0)
        try:
            major = int((reported or torch.cuda.get_device_capability())[0])
        except (RuntimeError, AttributeError):
            major = 0
        if not major:
            self.traits = {**self.traits, **NO_CAPABILITY}
        return major

    @override
    def is_bf16_supported(self) -> bool:
        """Return whether the device supports bfloat16; True without a device (a login node)."""
        return not self.is_available() or super().is_bf16_supported()

    @override
    def is_fp16_supported(self) -> bool:
        """Return whether the compute capability is at least 7 (6 if the user allows it); True if there is none."""
        capability = self._capability() if self.is_available() else 0
        return not capability or capability >= (6 if DEPRECATED_FP16.get() == "1" else 7)

    @override
    def is_triton_supported(self) -> bool:
        """Return whether the compute capability is at least 8. On ROCm importing Triton breaks the device."""
        return torch.version.hip is None and self.is_available() and self._capability() >= 8

    @override
    def prefer_triton_grouped_mm(self) -> bool:
        """Return True below compute capability 9, where torch._grouped_mm is a slow loop over the groups."""
        if not self.is_triton_supported() or importlib.util.find_spec("triton") is None:
            return False
        return self._capability() < 9

    @override
    def get_op_builder(self, class_name: str) -> Any:
        """Return the class of a builder; None for an unknown name, as DeepSpeed's class for CUDA does.

        Public code, such as Megatron-DeepSpeed, calls what it gets: a TypeError is its sign that there is no op.
        """
        known = class_name in TABLE or class_name in self.traits or class_name == "NotImplementedBuilder"
        return super().get_op_builder(class_name) if known else None

    @override
    def create_op_builder(self, class_name: str) -> Any:
        return super().get_op_builder(class_name)()

    # ----------------------------------------------------------------------------- ranges, memory

    @override
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        ranges.push(msg, domain, category)

    @override
    def range_pop(self, domain: str | None = None) -> None:
        ranges.pop(domain)

    @override
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Register page-locked memory with the CUDA driver; raises RuntimeError if the driver rejects it."""
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(address, num_bytes, 0)))
        return True

    @override
    def unregister_host_memory(self, address: int) -> None:
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(address)))

    # ------------------------------------------------------------------------------------- launch

    @override
    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of NCCL; None if torch is built without it."""
        # A fourth part may follow, which is a str.
        return tuple(torch.cuda.nccl.version()[:3]) if hasattr(torch._C, "_nccl_version") else None

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return visible.variables()
