# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: device work recorded once and replayed."""

from __future__ import annotations

from abc import ABC
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class GraphInterface(ABC):
    """By default there are no graphs: `create_graph` gives None and a capture is just the code inside."""

    def create_graph(self) -> Any:
        """A new empty graph, None where the device has none."""
        return None

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        """A context whose work is recorded into the graph."""
        return nullcontext()

    def replay_graph(self, graph: Any) -> None:
        """Run the recorded work again."""

    def is_current_stream_capturing(self) -> bool:
        """Whether work on the current stream is being recorded now."""
        return False
