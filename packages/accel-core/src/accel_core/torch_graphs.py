# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs of a torch device module, which all are called alike: CUDAGraph, XPUGraph, NPUGraph, MLUGraph, HPUGraph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from accel_core.interface import DeepSpeedAccelerator


class TorchGraphs(DeepSpeedAccelerator):
    """Releases of a runtime without graphs give None for one, and a capture of None is the code inside."""

    _ns: Any

    def create_graph(self) -> Any:
        kind = getattr(self._ns, f"{str(self._name).upper()}Graph", None)
        return None if kind is None else kind()

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        if graph is None:
            return super().capture_to_graph(graph, pool, stream)
        # names: a runtime without graphs has made none
        capture: AbstractContextManager[Any] = self._ns.graph(graph, pool=pool, stream=stream)
        return capture

    def replay_graph(self, graph: Any) -> None:
        if graph is not None:
            graph.replay()

    def is_current_stream_capturing(self) -> bool:
        capturing = getattr(self._ns, "is_current_stream_capturing", None)
        return bool(capturing and capturing())
