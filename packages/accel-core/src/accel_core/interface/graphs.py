# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: device work that is captured once and replayed."""

from __future__ import annotations

from abc import ABC
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class GraphInterface(ABC):
    """Graph capture. By default there is none: `create_graph` returns None and a capture runs the code inside."""

    def create_graph(self) -> Any:
        """Return a new empty graph, None if the device has no graphs."""
        return None

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        """Return a context manager that captures its work into the graph; None captures nothing: the work runs."""
        return nullcontext()

    def replay_graph(self, graph: Any) -> None:
        """Run the captured work again; None is none."""

    def is_current_stream_capturing(self) -> bool:
        """Return whether the current stream is capturing."""
        return False
