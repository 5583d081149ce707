# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams and events: the order of device work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class StreamInterface(ABC):
    """Queues of device work and marks in them. Stream and Event types are the runtime's own."""

    @property
    @abstractmethod
    def Stream(self) -> Any:
        """The runtime's stream class; None on a synchronized device."""

    @property
    @abstractmethod
    def Event(self) -> Any:
        """The runtime's event class, with `record`, `wait`, `query`, `synchronize`, `elapsed_time` (ms)."""

    @abstractmethod
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A context in which work goes to this stream; None leaves the stream as it is."""

    @abstractmethod
    def current_stream(self, device_index: int | None = None) -> Any:
        """The stream that work goes to now."""

    @abstractmethod
    def default_stream(self, device_index: int | None = None) -> Any:
        """The stream that work goes to when nobody chose another."""

    @abstractmethod
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Call back once the runtime is initialized: at once if it is, else right after. It is never dropped."""
