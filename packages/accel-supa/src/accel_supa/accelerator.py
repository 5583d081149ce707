# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Biren GPU: differences from other torch devices."""

from __future__ import annotations

import sys
from contextlib import suppress

import torch_supa
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_supa.op_builder import TABLE
from accel_supa.probe import VISIBLE
from accel_supa.traits import TRAITS

_EXPORTED = ["BCCL", "BIREN", "BRTB", "SUPA", "TORCH_SUPA", "PYTORCH_SUPA", "LD_LIBRARY", "PATH"]


class SUPA_Accelerator(TorchDeviceAccelerator):
    """Biren GPU, with torch.supa and bccl (gloo on Windows)."""

    def __init__(self) -> None:
        super().__init__(
            "supa",
            collectives="gloo" if sys.platform == "win32" else "bccl",
            ops=TABLE,
            traits=TRAITS,
            device_module=torch_supa.supa,
            visible=VISIBLE,
        )

    @override
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        with suppress(RuntimeError):  # of a build without BRTX
            torch_supa.supa.brtx.range_push(msg)

    @override
    def range_pop(self, domain: str | None = None) -> None:
        with suppress(RuntimeError):
            torch_supa.supa.brtx.range_pop()

    @override
    def is_triton_supported(self) -> bool:
        return True

    @override
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Register page-locked memory with the driver; raises RuntimeError if the driver rejects it."""
        torch_supa.supa.check_error(int(torch_supa.supa.supart().supaHostRegister(address, num_bytes, 0)))
        return True

    @override
    def unregister_host_memory(self, address: int) -> None:
        torch_supa.supa.check_error(int(torch_supa.supa.supart().supaHostUnregister(address)))

    @override
    def communication_backend_version(self) -> tuple[int, ...] | None:
        return tuple(torch_supa.supa.bccl.version()[:3])  # a fourth part is a str

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return list(VISIBLE.variables)
