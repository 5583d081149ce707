# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mixin for devices that do not benefit from page-locked host memory; goes before TorchDeviceAccelerator."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override

from accel_core.interface.pinned import PinnedMemoryInterface


class NoPinnedMemory(PinnedMemoryInterface):
    """`pin_memory` returns the tensor itself, because copies from any host tensor are equally fast.

    Without a copy (`make_copy=False`) it returns a new buffer, as on other devices.
    """

    torch_pins_host_memory = False

    @override
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    @override
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        return tensor.new_empty(shape)

    @override
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return False
