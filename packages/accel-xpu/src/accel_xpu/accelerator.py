# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs: differences from other torch devices."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_core.errors import InvalidEnvironment
from accel_ops import memory
from accel_xpu import collectives, hardware
from accel_xpu.op_builder import TABLE
from accel_xpu.traits import NO_GRAPHS, TRAITS

#: Without the affinity mask, which differs between nodes.
_EXPORTED = [
    "CCL_",
    "FI_",
    "I_MPI_",
    "ONEAPI_",
    "SYCL_",
    "UR_",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "LD_LIBRARY",
    "PATH",
]


class XPU_Accelerator(TorchDeviceAccelerator):
    """Intel GPUs, with torch.xpu, and ccl if oneCCL's bindings work, else xccl."""

    def __init__(self) -> None:
        traits = TRAITS if hasattr(torch.xpu, "XPUGraph") else {**TRAITS, **NO_GRAPHS}
        super().__init__(
            "xpu",
            collectives=collectives.choose().backend,
            ops=TABLE,
            traits=traits,
            visible=hardware.AFFINITY,
        )
        self._pinned_for = self._pin_arguments()

    @override
    def default_stream(self, device_index: int | None = None) -> Any:
        """Return the current stream, because torch.xpu has no default stream."""
        return self.current_stream(device_index)

    @override
    def is_bf16_supported(self) -> bool:
        """Return True, also without a device."""
        return True

    @override
    def is_fp64_supported(self) -> bool:
        """Return whether the device has double precision, which Intel's graphics GPUs lack; True without a device."""
        return bool(not self.is_available() or torch.xpu.get_device_properties().has_fp64)

    @override
    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        pinned = memory.pinned_like(tensor)
        # DeepSpeed 0.18 asserts that its buffers for swapping are pinned, and torch pins whatever `ulimit -l` is.
        return pinned if memory.MEMORY.is_locked(pinned) else super().pin_aligned(tensor)

    # Where torch has several accelerators, it locks memory for another one unless it gets the device.

    @override
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory(*self._pinned_for)

    @override
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        if self._pinned_for:
            return self.torch_pin_memory(tensor.new_empty(shape))
        return super().torch_empty_pinned(tensor, shape)

    @override
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return memory.MEMORY.is_locked(tensor) or tensor.is_pinned(*self._pinned_for)

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return [hardware.VISIBLE]

    @override
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        """Set the mask. With SYCL's selector, whose numbers would count among those of the mask, leave all visible."""
        ids = [str(index) for index in local_accelerator_ids]
        selector = next((name for name in hardware.AFFINITY.later if current_env.get(name)), "")
        if not selector:
            current_env[hardware.VISIBLE] = ",".join(ids)
        elif hardware.VISIBLE in current_env or ids != [str(index) for index in range(len(ids))]:
            raise InvalidEnvironment(
                f"{hardware.VISIBLE} cannot be set for a rank: devices {', '.join(ids)}, and "
                f"{selector}={current_env[selector]}",
                do=f"unset {selector}, and name the devices in {hardware.VISIBLE}",
            )
