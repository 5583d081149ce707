# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a device answers that lacks streams, or page-locked host memory: mixed in before TorchDeviceAccelerator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from accel_core.interface.device import DeviceRoom
from accel_core.interface.pinned import PinnedRoom
from accel_core.interface.streams import StreamRoom


class NoStreams(DeviceRoom, StreamRoom):
    """All work is done in the order of its calls, so there is nothing to choose and nothing to wait for.

    DeepSpeed reads `is_synchronized_device()` as just that: it then makes no stream and records none.
    """

    def is_synchronized_device(self) -> bool:
        return True

    @property
    def Stream(self) -> None:
        return None

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext()

    def current_stream(self, device_index: int | None = None) -> None:
        return None

    def default_stream(self, device_index: int | None = None) -> None:
        return None

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback()


class NoPinnedMemory(PinnedRoom):
    """A host tensor is as near to the device as page-locking could bring it: `pin_memory` gives the tensor itself."""

    _torch_pins_host_memory = False

    def pin_memory(
        self,
        tensor: torch.Tensor,
        make_copy: bool | int = True,
        match_shape: bool = True,
        *,
        align_bytes: int = 1,
    ) -> torch.Tensor:
        if self._native_pins() is None:
            return tensor
        return super().pin_memory(tensor, make_copy, match_shape, align_bytes=align_bytes)

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        return tensor.new_empty(shape)
