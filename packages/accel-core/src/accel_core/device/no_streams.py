# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mixin for devices without streams; goes before TorchDeviceAccelerator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from typing_extensions import override

from accel_core.interface.device import DeviceInterface
from accel_core.interface.streams import StreamInterface


class NoStreams(DeviceInterface, StreamInterface):
    """Operations run in the order of the calls; streams are None.

    `is_synchronized_device()` is True, so that DeepSpeed creates no streams and records no events.
    """

    @override
    def is_synchronized_device(self) -> bool:
        return True

    @property
    @override
    def Stream(self) -> None:
        return None

    @override
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext()

    @override
    def current_stream(self, device_index: int | None = None) -> None:
        return None

    @override
    def default_stream(self, device_index: int | None = None) -> None:
        return None

    @override
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback()
