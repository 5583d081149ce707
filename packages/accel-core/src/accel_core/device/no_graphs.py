# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mixin for devices whose work cannot be recorded; goes before TorchDeviceAccelerator."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from typing_extensions import override

from accel_core.interface.graphs import GraphInterface


class NoGraphs(GraphInterface):
    """`create_graph` returns None, and a capture runs the code inside."""

    @override
    def create_graph(self) -> None:
        return None

    @override
    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        return nullcontext()

    @override
    def replay_graph(self, graph: Any) -> None:
        pass

    @override
    def is_current_stream_capturing(self) -> bool:
        return False
