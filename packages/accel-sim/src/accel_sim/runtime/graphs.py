# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: the vendors' classes and capture contexts, and the wrapped modules of hpu."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from accel_sim import surface
from accel_sim.errors import absent
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
    if simulation.type not in ("npu", "mlu", "hpu", "supa"):
        return capturing
    name = f"{simulation.type.upper()}Graph"
    graph_class = _class(simulation, name)
    names: dict[str, Any] = {name: graph_class, "graph": _graph_context(simulation), **capturing}
    if simulation.type == "hpu":
        names |= _wrappers(graph_class, names["graph"])
    else:
        names["graph_pool_handle"] = lambda: simulation.native.graph_pool_handle()
    return names


def _torchs_own(simulation: Simulation) -> dict[str, Any]:
    """Return torch's own Python names, over the simulated native class, which a CPU build of torch lacks."""
    name, pool_handle, capturing = _IN_TORCH[simulation.type]
    methods = surface.load(simulation.vendor.surface).children(f"torch.{simulation.type}.{name}")
    rest = {each: absent(f"{name}.{each}") for each in methods if not hasattr(simulation.native.Graph, each)}
    binding: Any = torch._C
    setattr(binding, f"_{name}", type(f"_{name}", (simulation.native.Graph,), rest))
    setattr(binding, pool_handle, simulation.native.graph_pool_handle)
    setattr(binding, capturing, simulation.native.is_current_stream_capturing)
    if not hasattr(binding, "_host_emptyCache"):
        binding._host_emptyCache = lambda: None
    module: Any = importlib.reload(importlib.import_module(f"torch.{simulation.type}.graphs"))
    return {each: getattr(module, each) for each in (
        name, "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables")}  # fmt: skip


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
    members = {each: simulated.get(each, absent(f"{name}.{each}")) for each in methods}
    return type(name, (), {**members, "__init__": __init__, "__module__": simulation.vendor.module})


class _Capture:
    """A context that captures what runs inside it, on its own stream."""

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


def _graph_context(simulation: Simulation) -> type:
    """Return the vendor's context: its surface says in which order the options are."""
    entry = surface.load(simulation.vendor.surface).names[f"{simulation.vendor.module}.graph"]
    parameters = surface.read_signature(entry)
    assert parameters is not None
    _, *names = parameters.parameters

    class graph(_Capture):
        """Capture into a graph; that of hpu runs the code as well, unless `dry_run`."""

        def __init__(self, graph: Any, *values: Any) -> None:
            options = dict(zip(names, values, strict=False))
            begin = [options[name] for name in ("pool", "capture_error_mode", "dry_run") if name in options]
            super().__init__(
                simulation, options.get("stream"), lambda: graph.capture_begin(*begin), graph.capture_end
            )

    return graph


_CaptureContext = Callable[[Any], Any]


def _kind(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype, str(leaf.device)) if isinstance(leaf, torch.Tensor) else repr(leaf)


def _cached(
    function: Callable[..., Any], graph_class: Any, capture: _CaptureContext, most: int | None
) -> tuple[Callable[..., Any], dict[Any, Any]]:
    """Return a function that captures at the first call with inputs of such shapes and types, and replays at later
    ones; and its graphs."""
    graphs: dict[Any, tuple[Any, list[Any], Any]] = {}

    def captured(key: Any, leaves: list[Any], shape: Any) -> Any:
        static = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        arguments, options = _pytree.tree_unflatten(static, shape)
        graph = graph_class()
        with torch.no_grad(), capture(graph):
            result = function(*arguments, **options)
        graphs[key] = graph, static, result
        return result

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        leaves, shape = _pytree.tree_flatten((arguments, options))
        key = (str(shape), *map(_kind, leaves))
        if key not in graphs:
            full = most is not None and len(graphs) >= most
            return function(*arguments, **options) if full else captured(key, leaves, shape)
        graph, static, result = graphs[key]
        for here, given in zip(static, leaves, strict=True):
            if isinstance(here, torch.Tensor):
                here.copy_(given)
        graph.replay()
        return result

    return call, graphs


def _wrappers(graph_class: Any, capture: _CaptureContext) -> dict[str, Any]:
    """Return the functions over the vendor's graph class and its capture context."""

    def wrap_in_hpu_graph(
        module: Any, asynchronous: bool = False, disable_tensor_cache: bool = False, dry_run: bool = False,
        max_graphs: int | None = None,
    ) -> Any:  # fmt: skip
        module.forward, graphs = _cached(module.forward, graph_class, capture, max_graphs)
        module.clear_cache = graphs.clear
        module.clear_inputs = lambda: None
        return module

    def wrap_in_hpu_graph_func(
        func: Any, asynchronous: bool = False, disable_tensor_cache: bool = False, dry_run: bool = False,
        max_graphs: int | None = None,
    ) -> Any:  # fmt: skip
        return _cached(func, graph_class, capture, max_graphs)[0]

    return {"wrap_in_hpu_graph": wrap_in_hpu_graph, "wrap_in_hpu_graph_func": wrap_in_hpu_graph_func}
