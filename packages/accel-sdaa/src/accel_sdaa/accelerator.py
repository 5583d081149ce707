# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tecorigin SDAA: differences from other torch devices."""

from __future__ import annotations

import torch_sdaa
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_sdaa import compile_backend, namespace
from accel_sdaa.op_builder import TABLE
from accel_sdaa.probe import VISIBLE
from accel_sdaa.traits import TRAITS

_EXPORTED = ["TCCL", "NCCL", "SDAA", "TORCH_SDAA", "LD_LIBRARY", "PATH"]
_NOT_CHOSEN = ""


class SDAA_Accelerator(TorchDeviceAccelerator):
    """Tecorigin SDAA, with torch.sdaa and tccl."""

    def __init__(self) -> None:
        super().__init__(
            "sdaa",
            collectives="tccl",
            ops=TABLE,
            traits=TRAITS,
            device_module=torch_sdaa.sdaa,
            fallbacks=namespace.fallbacks(torch_sdaa.sdaa),
            compile_backend=_NOT_CHOSEN,
            visible=VISIBLE,
        )

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return list(VISIBLE.variables)

    @override
    def get_compile_backend(self) -> str:
        return self._compile_backend or compile_backend.default()
