# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs of a device module. All runtimes use the same naming: CUDAGraph, XPUGraph, NPUGraph, MLUGraph, HPUGraph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, cast

from typing_extensions import override

from accel_core.device.module import DeviceModule, GraphModule
from accel_core.interface import DeepSpeedAccelerator


class Graphs(DeepSpeedAccelerator):
    """Capture and replay through `torch.<type>.<TYPE>Graph` and `torch.<type>.graph`.

    `create_graph` returns None if the runtime has no graphs; a capture with None runs the code.
    """

    device_module: DeviceModule

    @override
    def create_graph(self) -> Any:
        cls = getattr(self.device_module, f"{str(self._name).upper()}Graph", None)
        return None if cls is None else cls()

    @override
    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        if graph is None:
            return super().capture_to_graph(graph, pool, stream)
        return cast(GraphModule, self.device_module).graph(graph, pool=pool, stream=stream)

    @override
    def replay_graph(self, graph: Any) -> None:
        if graph is not None:
            graph.replay()

    @override
    def is_current_stream_capturing(self) -> bool:
        capturing = getattr(self.device_module, "is_current_stream_capturing", None)
        return bool(capturing and capturing())
