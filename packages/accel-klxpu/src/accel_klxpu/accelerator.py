# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kunlunxin XPU: differences from other torch devices."""

from __future__ import annotations

import os

import torch
import torch_xmlir  # noqa: F401  # puts the device under torch.cuda, before that is used
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_klxpu.op_builder import TABLE
from accel_klxpu.probe import VISIBLE
from accel_klxpu.traits import TRAITS

_EXPORTED = ["BKCL", "NCCL", "TORCH_NCCL", "XPU", "XMLIR", "CUDA", "LD_LIBRARY", "PATH"]


class KLXPU_Accelerator(TorchDeviceAccelerator):
    """Kunlunxin XPU, with torch.cuda and nccl, for which torch_xmlir has BKCL."""

    supports_nvtx_domain = False

    def __init__(self) -> None:
        super().__init__(
            "cuda",
            collectives="nccl",
            ops=TABLE,
            traits=TRAITS,
            device_module=torch.cuda,
            visible=VISIBLE,
        )

    @override
    def is_available(self) -> bool:
        """Return whether there is a device; torch.cuda.is_available() would open the driver, which a fork breaks."""
        return self.device_count() > 0

    @override
    def use_host_timers(self) -> bool:
        """Return True unless XPU_EVENT_KL3_ENABLE=1: without it, events measure 0."""
        return os.environ.get("XPU_EVENT_KL3_ENABLE") != "1"

    @override
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Register page-locked memory with the driver; raises RuntimeError if the driver rejects it."""
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(address, num_bytes, 0)))
        return True

    @override
    def unregister_host_memory(self, address: int) -> None:
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(address)))

    @override
    def communication_backend_version(self) -> tuple[int, ...] | None:
        return tuple(torch.cuda.nccl.version()[:3]) if hasattr(torch._C, "_nccl_version") else None

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return list(VISIBLE.variables)
