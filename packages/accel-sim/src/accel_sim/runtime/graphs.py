# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: the vendor's class and capture context over the native recorder."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from accel_sim import surface
from accel_sim.errors import raise_not_simulated
from accel_sim.runtime import graphed_callables, hpu_graphs
from accel_sim.simulation import Simulation

#: The vendors whose graphs are torch's own Python code over a native class: its names in torch._C.
_IN_TORCH = {
    "cuda": ("CUDAGraph", "_graph_pool_handle", "_cuda_isCurrentStreamCapturing"),
    "xpu": ("XPUGraph", "_xpu_graph_pool_handle", "_xpu_isCurrentStreamCapturing"),
}


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds; only `is_current_stream_capturing` where the vendor has no graphs."""
    capturing = {"is_current_stream_capturing": lambda: simulation.native.is_current_stream_capturing()}
    if simulation.type in _IN_TORCH:
        return _torchs_own(simulation)
    contexts = {"npu": _npu_graph, "mlu": _mlu_graph, "hpu": _hpu_graph}
    if simulation.type not in contexts:
        return capturing
    name = f"{simulation.type.upper()}Graph"
    graph_class = _class(simulation, name)
    names: dict[str, Any] = {name: graph_class, "graph": contexts[simulation.type](simulation), **capturing}
    if simulation.type == "hpu":
        names |= hpu_graphs.exports(graph_class, names["graph"])
    else:
        names["graph_pool_handle"] = lambda: simulation.native.graph_pool_handle()
        names["make_graphed_callables"] = graphed_callables.maker(simulation, graph_class, names["graph"])
    return names


def _torchs_own(simulation: Simulation) -> dict[str, Any]:
    """Return torch's own Python names, over the simulated native class, which a CPU build of torch lacks."""
    name, pool_handle, capturing = _IN_TORCH[simulation.type]
    methods = surface.load(simulation.vendor.surface).children(f"torch.{simulation.type}.{name}")
    absent = {each: _absent(name, each) for each in methods if not hasattr(simulation.native.Graph, each)}
    binding: Any = torch._C
    setattr(binding, f"_{name}", type(f"_{name}", (simulation.native.Graph,), absent))
    setattr(binding, pool_handle, simulation.native.graph_pool_handle)
    setattr(binding, capturing, simulation.native.is_current_stream_capturing)
    if not hasattr(binding, "_host_emptyCache"):
        binding._host_emptyCache = lambda: None
    module: Any = importlib.reload(importlib.import_module(f"torch.{simulation.type}.graphs"))
    return {each: getattr(module, each) for each in (
        name, "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables")}  # fmt: skip


def _absent(class_name: str, method: str) -> Callable[..., Any]:
    def absent(*_args: Any, **_kwargs: Any) -> Any:
        raise_not_simulated(f"{class_name}.{method}")

    return absent


def _class(simulation: Simulation, name: str) -> type:
    """Return the vendor's graph class with the real one's methods; those not simulated raise NotSimulated."""
    hpu = simulation.type == "hpu"
    mode = "relaxed" if simulation.type == "mlu" else "global"

    def __init__(self: Any, *_options: Any) -> None:
        self._graph = simulation.native.Graph()

    def capture_begin(self: Any, pool: Any = None, capture_error_mode: str = mode) -> None:
        self._graph.capture_begin(pool=pool, capture_error_mode=capture_error_mode)

    def hpu_capture_begin(self: Any, dry_run: bool = False) -> None:
        self._graph.reset()  # this class may be captured again
        self._graph.capture_begin(executes=not dry_run)

    def hpu_replay(self: Any, asynchronous: bool = False) -> None:
        self._graph.replay()

    simulated = {
        "capture_begin": hpu_capture_begin if hpu else capture_begin,
        "capture_end": lambda self: self._graph.capture_end(),
        "replay": hpu_replay if hpu else lambda self: self._graph.replay(),
        "reset": lambda self: self._graph.reset(),
        "pool": lambda self: self._graph.pool(),
        "register_generator_state": lambda self, generator: self._graph.register_generator_state(generator),
        "enable_debug_mode": lambda self: None,
        "clear_inputs": lambda self: None,
        "mark_user_inputs": lambda self, static_tlist: None,
        "mark_user_outputs": lambda self, static_tlist: None,
    }
    methods = surface.load(simulation.vendor.surface).children(f"{simulation.vendor.module}.{name}")
    members = {each: simulated.get(each, _absent(name, each)) for each in methods}
    return type(name, (), {**members, "__init__": __init__, "__module__": simulation.vendor.module})


class _Capture:
    """A context that captures what runs inside it, on a stream of its own."""

    default_capture_stream: Any = None

    def __init__(
        self, simulation: Simulation, stream: Any, begin: Callable[[], None], end: Callable[[], None]
    ):
        cls = type(self)
        if stream is None and cls.default_capture_stream is None:
            cls.default_capture_stream = simulation.simulated["Stream"]()
        self.capture_stream = cls.default_capture_stream if stream is None else stream
        self.stream_ctx = simulation.simulated["StreamContext"](self.capture_stream)
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        torch.accelerator.synchronize()
        self.stream_ctx.__enter__()
        self._begin()

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            self._end()
        finally:
            self.stream_ctx.__exit__(exc_type, exc_value, traceback)


def _npu_graph(simulation: Simulation) -> type:
    class graph(_Capture):
        """Capture into an NPUGraph."""

        def __init__(self, npu_graph: Any, pool: Any = None, stream: Any = None, auto_dispatch_capture: bool = False,
                     capture_error_mode: str = "global") -> None:  # fmt: skip
            super().__init__(
                simulation,
                stream,
                lambda: npu_graph.capture_begin(pool, capture_error_mode),
                npu_graph.capture_end,
            )

    return graph


def _mlu_graph(simulation: Simulation) -> type:
    class graph(_Capture):
        """Capture into an MLUGraph."""

        def __init__(
            self, mlu_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "relaxed"
        ) -> None:
            super().__init__(
                simulation,
                stream,
                lambda: mlu_graph.capture_begin(pool, capture_error_mode),
                mlu_graph.capture_end,
            )

    return graph


def _hpu_graph(simulation: Simulation) -> type:
    class graph(_Capture):
        """Capture into an HPUGraph; the code runs as well, unless `dry_run`."""

        def __init__(self, hpu_graph: Any, stream: Any = None, dry_run: bool = False) -> None:
            super().__init__(
                simulation, stream, lambda: hpu_graph.capture_begin(dry_run), hpu_graph.capture_end
            )

    return graph
