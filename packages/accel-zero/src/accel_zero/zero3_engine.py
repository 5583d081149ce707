# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of what ZeRO 3 does for each module and parameter.

This file is loaded while DeepSpeed's modules are imported, so it imports none that has replaced methods.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
from deepspeed import comm as dist
from deepspeed.accelerator import get_accelerator

from accel_core.device import TorchDeviceAccelerator
from accel_zero import many_tensors

Stock = Callable[..., Any]


class Ranges:
    """The switch of profiler ranges until the first of them: from then on it is False if the accelerator has none."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __bool__(self) -> bool:
        """Return whether ranges are recorded, and make that the value of the switch."""
        from deepspeed.utils import nvtx

        recorded = type(get_accelerator()).range_push is not TorchDeviceAccelerator.range_push
        nvtx.enable_nvtx = found = bool(self._stock) and recorded
        return found


def print_on_first(stock: Stock, message: Any, debug: bool = False, force: bool = False) -> None:
    """Ask for the rank only if there is something to print."""
    if debug or force:
        stock(message, debug, force)


def all_parameters(stock: Stock, sub_module: Any, recurse: bool = False) -> Iterable[tuple[str, Any]]:
    """Return the parameters of a module itself without a search in its children."""
    if recurse or type(sub_module).named_parameters is not torch.nn.Module.named_parameters:
        return stock(sub_module, recurse)  # type: ignore[no-any-return]
    own = {param: name for name, param in sub_module._parameters.items() if param is not None}
    return itertools.chain(
        ((name, param) for param, name in own.items()), sub_module.ds_external_parameters()
    )


class _Positional(inspect.Signature):
    """The signature of a function that is called with all its arguments by position."""

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return the arguments as they are."""
        if kwargs or len(args) != len(self.parameters):
            return super().bind(*args, **kwargs)
        return SimpleNamespace(args=args, kwargs=kwargs, apply_defaults=_nothing)


def _nothing() -> None:
    pass


def sign(function: Any) -> None:
    """Keep the signature of an autograd function's `forward`, which torch computes at each call."""
    forward = function.forward
    if not hasattr(forward, "__signature__"):
        forward.__signature__ = _Positional(list(inspect.signature(forward).parameters.values()))


def register_module(stock: Stock, self: Any, module: Any, *count: Any, **counts: Any) -> None:
    """Register the hooks of a module, and keep the signatures of its autograd functions."""
    stock(self, module, *count, **counts)
    sign(module.pre_bwd_fn)
    sign(module.post_bwd_fn)


def linear(stock: Stock, *args: Any, **kwargs: Any) -> Any:
    """Apply ZeRO 3's linear function, whose signature is kept."""
    from deepspeed.runtime.zero.linear import LinearFunctionForZeroStage3

    sign(LinearFunctionForZeroStage3)
    return stock(*args, **kwargs)


def gather(stock: Stock, self: Any, param_list: Any, hierarchy: Any = 0, quantize: bool = False) -> Any:
    """Gather the small parameters of a group together, at most `many_tensors.CHUNK` elements at a time."""
    small = [each for each in param_list if 0 < each.ds_numel <= many_tensors.SMALL]
    if quantize or not self.use_all_gather_into_tensor or len(small) < 2:
        return stock(self, param_list, hierarchy, quantize)
    group, kind = self.get_partition_dp_group(small[0]), small[0].ds_tensor.dtype
    ranks = dist.get_world_size(group)
    if ranks == 1 or any(
        each.ds_tensor.dtype != kind or self.get_partition_dp_group(each) is not group for each in small
    ):
        return stock(self, param_list, hierarchy, quantize)
    found = {id(each) for each in small}
    if others := [each for each in param_list if id(each) not in found]:
        stock(self, others, hierarchy, quantize)
    device, rest = get_accelerator().device_name(), iter(small)
    partitions = [each.ds_tensor.to(device).view(-1) for each in small]
    for parts in many_tensors.chunks(partitions, many_tensors.CHUNK // ranks):
        joined = many_tensors.flat(parts)
        gathered = joined.new_empty(ranks * joined.numel())
        dist.all_gather_into_tensor(gathered, joined, group=group)
        # Each parameter has memory of its own, as with the stock method: it is released by itself.
        whole = [part.new_empty((ranks, part.numel()), device=self.local_device) for part in parts]
        torch._foreach_copy_(whole, gathered.view(ranks, -1).split([part.numel() for part in parts], 1))
        for param, data in zip(itertools.islice(rest, len(parts)), whole, strict=True):
            param.data = data.view(-1).narrow(0, 0, param.ds_numel).view(param.ds_shape).data
    return None
