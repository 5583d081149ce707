# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Apple GPU: differences from other torch devices."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import override

from accel_core.device import DeviceModule, NoPinnedMemory, NoStreams, OneDeviceAccelerator
from accel_core.vendor import host_collectives
from accel_mps import memory, runtime, traits
from accel_mps.op_builder import TABLE

_EXPORTED = ["PYTORCH_MPS", "PYTORCH_ENABLE_MPS_FALLBACK", "GLOO"]


class MPS_Accelerator(NoStreams, NoPinnedMemory, OneDeviceAccelerator):
    """Apple's GPU, with torch.mps and gloo on copies in host memory.

    `is_synchronized_device()` is True because torch.mps has no streams that DeepSpeed could order. Calls still
    return before the work is done. Events are supported.
    """

    def __init__(self) -> None:
        host_collectives.register("mps")
        declared = traits.of_machine(bf16=_computes_bf16(), peaks=memory.allocator_keeps_peaks())
        super().__init__(
            "mps",
            collectives="gloo",
            ops=TABLE,
            traits=declared,
            # It lacks streams, and other names that OneDeviceAccelerator does not call.
            device_module=cast(DeviceModule, runtime),
        )

    @override
    def current_device(self) -> int:
        return 0

    @override
    def set_device(self, device_index: int) -> None:
        """Do nothing: ranks pass their local rank, and all use the same device."""

    @property
    @override
    def Event(self) -> type[torch.mps.Event]:
        return torch.mps.Event

    @override
    def default_generator(self, device_index: int) -> torch.Generator:
        self.checked_index(device_index)
        return runtime.default_generator()

    def seed(self) -> None:
        """Seed the device's generator with a random number, as DeepSpeed's class does."""
        torch.mps.seed()

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        """Limit this process's memory to a part of the size that Metal recommends, as DeepSpeed's class does."""
        torch.mps.set_per_process_memory_fraction(fraction)

    @override
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Return True for host memory, which the GPU shares: nobody need copy it to pin it."""
        return tensor.device.type == "cpu"

    @override
    def is_bf16_supported(self) -> bool:
        return _computes_bf16()

    @override
    def is_fp64_supported(self) -> bool:
        return False

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return []


def _computes_bf16() -> bool:
    return torch.backends.mps.is_macos_or_newer(14, 0)
