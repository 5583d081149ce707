# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of torch's Adam on the CPU over a piece of a large parameter at a time, with the same bits.

Adam has a dozen operations, each over all elements. Those of a flat partition do not fit into the cache, and the memory
of their results is new in each step. Pieces stay in the cache, and their memory is used again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

Stock = Callable[..., Any]
#: Elements of a piece for each thread.
PIECE = 2**17
#: Parameters with fewer elements are updated whole.
LARGE = 2**21
_OPTIMIZERS = (torch.optim.Adam, torch.optim.AdamW)


def step_group(stock: Stock, self: Any, group: int) -> None:
    """Step one group of ZeRO 1 or 2."""
    with in_pieces(self.optimizer, self.optimizer.param_groups[group]):
        stock(self, group)


def step_subgroup(stock: Stock, self: Any, sub_group_id: int) -> None:
    """Step one sub-group of ZeRO 3, whose stock method sets the parameters of the optimizer's group itself."""
    if self.offload_optimizer or self.zenflow or self.torch_autocast_gradscaler:
        stock(self, sub_group_id)
        return
    group = self.optimizer.param_groups[self.sub_group_to_group_id[sub_group_id]]
    group["params"] = [self.fp32_partitioned_groups_flat[sub_group_id]]
    with in_pieces(self.optimizer, group):
        self.optimizer.step()
    group["params"] = []


@contextlib.contextmanager
def in_pieces(optimizer: Any, group: dict[str, Any]) -> Iterator[None]:
    """Replace large parameters of a group of the optimizer by their pieces, for one step."""
    whole = group["params"]
    pieces = {param: _split(optimizer, param) for param in whole if _divisible(optimizer, group, param)}
    group["params"] = [piece for param in whole for piece in pieces.get(param, [param])]
    try:
        yield
        for param, (piece, *_) in pieces.items():
            for name, value in optimizer.state[piece].items():
                if value.dim() == 0:
                    optimizer.state[param][name].copy_(value)
    finally:
        group["params"] = whole
        for parts in pieces.values():
            for piece in parts:
                optimizer.state.pop(piece, None)


def _divisible(optimizer: Any, group: dict[str, Any], param: torch.Tensor) -> bool:
    """True if each element's update depends on that element alone, and a list of operations would be too large."""
    state = optimizer.state.get(param)
    return (
        type(optimizer) in _OPTIMIZERS
        and not _hooked(optimizer)
        and bool(state)  # the first step makes it
        and not any(group.get(name) for name in ("foreach", "fused", "differentiable", "capturable"))
        and param.numel() >= LARGE
        and param.grad is not None
        and all(_flat(each, param) for each in (param, param.grad))
        and all(_flat(each, param) or _count(each) for each in state.values())
    )


def _hooked(optimizer: Any) -> bool:
    """True if somebody's hook would see the pieces."""
    own = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    return any((*own, _global_optimizer_pre_hooks, _global_optimizer_post_hooks))


def _flat(tensor: Any, param: torch.Tensor) -> bool:
    # Vector and scalar instructions round 16-bit numbers differently, and the end of a piece is scalar.
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.is_cpu
        and tensor.dtype == torch.float32
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.shape == param.shape == (param.numel(),)
    )


def _count(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _split(optimizer: Any, param: torch.Tensor) -> list[torch.Tensor]:
    """Return views of the parameter with views of its gradient and state."""
    size, state = PIECE * torch.get_num_threads(), optimizer.state[param]
    assert param.grad is not None
    pieces, grads = (each.detach().split(size) for each in (param, param.grad))
    parts = {name: value.split(size) for name, value in state.items() if value.dim()}
    for index, (piece, grad) in enumerate(zip(pieces, grads, strict=True)):
        piece.grad = grad
        optimizer.state[piece] = {
            name: parts[name][index] if name in parts else value.clone() for name, value in state.items()
        }
    return list(pieces)
