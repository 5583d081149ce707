# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`hpu.wrap_in_hpu_graph`: a module or function that is captured once for each kind of input, and replayed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

Capture = Callable[[Any], Any]


class _Cache:
    """The graphs of one function, by shapes and types of its inputs."""

    def __init__(
        self, function: Callable[..., Any], graph_class: Any, capture: Capture, most: int | None
    ) -> None:
        self.function, self.graph_class, self.capture, self.most = function, graph_class, capture, most
        self.graphs: dict[Any, tuple[Any, list[Any], Any]] = {}

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Capture at the first call with such inputs, and replay at later ones."""
        leaves, shape = _pytree.tree_flatten((arguments, options))
        key = (str(shape), *map(_kind, leaves))
        known = self.graphs.get(key)
        if known is None:
            if self.most is not None and len(self.graphs) >= self.most:
                return self.function(*arguments, **options)
            return self._captured(key, leaves, shape)
        graph, static, result = known
        for here, given in zip(static, leaves, strict=True):
            if isinstance(here, torch.Tensor):
                here.copy_(given)
        graph.replay()
        return result

    def _captured(self, key: Any, leaves: list[Any], shape: Any) -> Any:
        static = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        arguments, options = _pytree.tree_unflatten(static, shape)
        graph = self.graph_class()
        with torch.no_grad(), self.capture(graph):
            result = self.function(*arguments, **options)
        self.graphs[key] = graph, static, result
        return result


def _kind(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype, str(leaf.device)) if isinstance(leaf, torch.Tensor) else repr(leaf)


def _called_like(function: Callable[..., Any], cache: _Cache) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return cache.call(*arguments, **options)

    return call


def exports(graph_class: Any, capture: Capture) -> dict[str, Any]:
    """Return the functions over the vendor's graph class and its capture context."""

    def wrap_in_hpu_graph(
        module: Any, asynchronous: bool = False, disable_tensor_cache: bool = False, dry_run: bool = False,
        max_graphs: int | None = None,
    ) -> Any:  # fmt: skip
        cache = _Cache(module.forward, graph_class, capture, max_graphs)
        module.forward = _called_like(module.forward, cache)
        module.clear_cache = cache.graphs.clear
        module.clear_inputs = lambda: None
        return module

    def wrap_in_hpu_graph_func(
        func: Any, asynchronous: bool = False, disable_tensor_cache: bool = False, dry_run: bool = False,
        max_graphs: int | None = None,
    ) -> Any:  # fmt: skip
        return _called_like(func, _Cache(func, graph_class, capture, max_graphs))

    return {"wrap_in_hpu_graph": wrap_in_hpu_graph, "wrap_in_hpu_graph_func": wrap_in_hpu_graph_func}
