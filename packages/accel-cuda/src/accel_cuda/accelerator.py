# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CUDA and ROCm: where torch.cuda differs from any other device of torch."""

from __future__ import annotations

import importlib.util
import sys

import torch
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_cuda import nvml, ranges, visible
from accel_cuda.op_builder import TABLE
from accel_cuda.traits import ROCM, TRAITS
from accel_cuda.variables import DEPRECATED_FP16

_EXPORTED = ["NCCL", "TORCH_NCCL"]


class CUDA_Accelerator(TorchDeviceAccelerator):
    """NVIDIA's and AMD's GPUs through torch.cuda, nccl between ranks (gloo on Windows)."""

    supports_nvtx_domain = True

    def __init__(self) -> None:
        collectives = "gloo" if sys.platform == "win32" else "nccl"
        traits = ROCM if torch.version.hip else TRAITS
        super().__init__("cuda", collectives=collectives, ops=TABLE, traits=traits, device_module=torch.cuda)

    @override
    def is_available(self) -> bool:
        """Counted through NVML where it is there, so that a process may fork afterwards."""
        return self.device_count() > 0

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        """Asked of NVML before there is a context, so that asking makes none."""
        if not torch.cuda.is_initialized():
            free = nvml.free_memory(device_index or 0)
            if free is not None:
                return free
        return super().available_memory(device_index)

    # ------------------------------------------------------------------------------------- dtypes

    def _capability(self) -> int:
        """Major compute capability; makes no context where NVML tells."""
        reported = None if torch.cuda.is_initialized() else nvml.capability(0)
        return int((reported or torch.cuda.get_device_capability())[0])

    @override
    def is_bf16_supported(self) -> bool:
        """Without a device (a login node) as if there were a good one."""
        return not self.is_available() or super().is_bf16_supported()

    @override
    def is_fp16_supported(self) -> bool:
        """From compute capability 7 on, and 6 if the user insists; always without a device."""
        if not self.is_available():
            return True
        return self._capability() >= (6 if DEPRECATED_FP16.get() == "1" else 7)

    @override
    def is_triton_supported(self) -> bool:
        """From compute capability 8 on; never on ROCm, where Triton's import breaks torch's device."""
        return torch.version.hip is None and self.is_available() and self._capability() >= 8

    @override
    def prefer_triton_grouped_mm(self) -> bool:
        """Below compute capability 9 torch._grouped_mm is a slow loop over the groups."""
        if not self.is_triton_supported() or importlib.util.find_spec("triton") is None:
            return False
        return not hasattr(torch, "_grouped_mm") or self._capability() < 9

    # ----------------------------------------------------------------------------- ranges, memory

    @override
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        ranges.push(msg, domain, category)

    @override
    def range_pop(self, domain: str | None = None) -> None:
        ranges.pop(domain)

    @override
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Make pages that somebody else locked known to the CUDA driver; raises RuntimeError if it refuses."""
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(address, num_bytes, 0)))
        return True

    @override
    def unregister_host_memory(self, address: int) -> None:
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(address)))

    # ------------------------------------------------------------------------------------- launch

    @override
    def communication_backend_version(self) -> tuple[int, ...] | None:
        """NCCL's version; None for a torch without it."""
        # A fourth part, where there is one, is a text.
        return tuple(torch.cuda.nccl.version()[:3]) if hasattr(torch._C, "_nccl_version") else None

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return [visible.VARIABLE]
