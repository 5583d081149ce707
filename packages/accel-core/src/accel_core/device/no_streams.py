# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""For devices without streams: mixed in before TorchDeviceAccelerator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from typing_extensions import override

from accel_core.interface.device import DeviceInterface
from accel_core.interface.streams import StreamInterface


class NoStreams(DeviceInterface, StreamInterface):
    """Work runs in the order of the calls: there is no stream to choose and none to wait for.

    `is_synchronized_device()` is True: DeepSpeed then makes no stream and records no event.
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
