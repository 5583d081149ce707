# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams and events: the order of device work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class StreamInterface(ABC):
    """Streams, in which device work is queued, and events recorded in them, of the runtime's own types."""

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
        """Return a context manager that makes this stream the current one; None leaves the current stream."""

    @abstractmethod
    def current_stream(self, device_index: int | None = None) -> Any:
        """Return the current stream of a device."""

    @abstractmethod
    def default_stream(self, device_index: int | None = None) -> Any:
        """Return the default stream of a device."""

    @abstractmethod
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Call `callback` when the runtime is initialized: now if it is, else right after its initialization."""
