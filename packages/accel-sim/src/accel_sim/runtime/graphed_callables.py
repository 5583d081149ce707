# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphed callables: a module or function whose forward and backward are a graph each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree

from accel_sim.simulation import Simulation

Tensors = tuple[Any, ...]


@dataclass
class _Part:
    """One callable with the memory that its graphs work on."""

    call: Any
    arguments: Tensors
    unused: bool
    forward: Any
    backward: Any
    leaves: list[Any] = field(init=False)
    inputs: Tensors = field(init=False)  # the leaves of the arguments, then the parameters
    outputs: Tensors = ()
    shape: Any = None
    grads_out: Tensors = ()
    grads_in: Tensors = ()

    def __post_init__(self) -> None:
        self.leaves = _pytree.tree_leaves(self.arguments)
        parameters = self.call.parameters() if isinstance(self.call, torch.nn.Module) else ()
        self.inputs = (*self.leaves, *parameters)

    def warm_up(self) -> None:
        outputs = _pytree.tree_leaves(self.call(*self.arguments))
        self.differentiate(outputs, [torch.empty_like(each) for each in outputs if each.requires_grad])

    def differentiate(self, outputs: Any, grads: Any) -> Tensors:
        ends = [each for each in outputs if each.requires_grad]
        starts = [each for each in self.inputs if each.requires_grad]
        if not ends:
            return ()
        return torch.autograd.grad(ends, starts, grads, only_inputs=True, allow_unused=self.unused)

    def capture_forward(self, capture: Callable[[Any], Any]) -> None:
        with capture(self.forward):
            result = self.call(*self.arguments)
        leaves, self.shape = _pytree.tree_flatten(result)
        self.outputs = tuple(leaves)

    def capture_backward(self, capture: Callable[[Any], Any]) -> None:
        self.grads_out = tuple(torch.empty_like(o) if o.requires_grad else None for o in self.outputs)
        if all(grad is None for grad in self.grads_out):
            self.grads_in = tuple(None for _ in self.inputs)
            return
        with capture(self.backward):
            grads = iter(self.differentiate(self.outputs, [g for g in self.grads_out if g is not None]))
        self.grads_in = tuple(next(grads) if each.requires_grad else None for each in self.inputs)

    def finished(self) -> Callable[..., Any]:
        node = _node(self)
        parameters = self.inputs[len(self.leaves) :]

        def graphed(*arguments: Any) -> Any:
            return _pytree.tree_unflatten(
                node.apply(*_pytree.tree_leaves(arguments), *parameters), self.shape
            )

        if not isinstance(self.call, torch.nn.Module):
            return graphed
        module, training, plain = self.call, self.call.training, self.call.forward
        module.forward = lambda *arguments: (graphed if module.training == training else plain)(*arguments)
        return module


def _node(part: _Part) -> Any:
    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, *inputs: Any) -> Any:
            for static, given in zip(part.leaves, inputs, strict=False):
                if static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            part.forward.replay()
            return tuple(each.detach() for each in part.outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(_ctx: Any, *grads: Any) -> Any:
            for static, given in zip(part.grads_out, grads, strict=True):
                if static is not None and static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            part.backward.replay()
            return tuple(each if each is None else each.detach() for each in part.grads_in)

    return Graphed


def maker(simulation: Simulation, graph_class: Any, capture: Any) -> Callable[..., Any]:
    """The vendor's `make_graphed_callables`."""

    def make_graphed_callables(
        callables: Any,
        sample_args: Any,
        num_warmup_iters: int = 3,
        allow_unused_input: bool = False,
        pool: Any = None,
    ) -> Any:
        one = not isinstance(callables, tuple)
        calls, samples = ((callables,), (sample_args,)) if one else (callables, sample_args)
        shared = simulation.native.graph_pool_handle() if pool is None else pool
        parts = [
            _Part(call, arguments, allow_unused_input, graph_class(), graph_class())
            for call, arguments in zip(calls, samples, strict=True)
        ]
        torch.accelerator.synchronize()
        with simulation.simulated["StreamContext"](simulation.simulated["Stream"]()):
            for part in parts:
                for _ in range(num_warmup_iters):
                    part.warm_up()
        torch.accelerator.synchronize()
        for part in parts:
            part.capture_forward(lambda graph: capture(graph, pool=shared))
        for part in reversed(parts):
            part.capture_backward(lambda graph: capture(graph, pool=shared))
        finished = tuple(part.finished() for part in parts)
        return finished[0] if one else finished

    return make_graphed_callables
