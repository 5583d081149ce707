# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of methods of pipelines and parameters that fix them; docs/deepspeed-issues.md has each issue."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# ------------------------------------------------------------------------------------------- pipelines


def buffer(stock: Callable[..., Any], engine: Any, idx: int, shape: Any, dtype: Any) -> Any:
    """Return a buffer of this dtype, where the stock method returns the one of another tensor that is large enough."""
    held = engine._grad_layer_buf
    if idx < len(held) and held[idx].dtype != dtype:
        held[idx] = held[idx].new_empty(0, dtype=dtype)
    return stock(engine, idx, shape, dtype)


def partition_layers(stock: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> None:
    """Make the bounds of stages, which are numpy's, ints: seeds are computed from them."""
    stock(module, *args, **kwargs)
    module.parts = [int(part) for part in module.parts]
    module._set_bounds(int(module._local_start), int(module._local_stop))


def forward(stock: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
    """Do not checkpoint layers none of whose inputs needs a gradient: autograd would not enter them."""
    from deepspeed.runtime.activation_checkpointing import checkpointing

    chosen = module.activation_checkpoint_func
    if chosen is not checkpointing.checkpoint:
        return stock(module, *args, **kwargs)

    def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
        if any(getattr(each, "requires_grad", False) for each in inputs):
            return chosen(function, *inputs)
        return function(*inputs)

    module.activation_checkpoint_func = checkpoint
    try:
        return stock(module, *args, **kwargs)
    finally:
        module.activation_checkpoint_func = chosen


class _Outputs:
    """Outputs of a stage with the `backward` that the stock method calls for a single tensor."""

    def __init__(self, outputs: tuple[Any, ...]) -> None:
        self._tensors = [tensor for tensor in outputs if tensor.is_floating_point()]

    def backward(self, gradient: Sequence[Any]) -> None:
        import torch

        torch.autograd.backward(self._tensors, gradient)


def backward_pass(stock: Callable[..., None], engine: Any, buffer_id: int) -> None:
    """Run one backward pass for all outputs of a stage: the stock method runs one for each of them."""
    buffers = engine.pipe_buffers["outputs"]
    if isinstance(buffers[buffer_id], tuple) and not (engine.is_last_stage() or engine.is_pipe_partitioned):
        buffers[buffer_id] = _Outputs(buffers[buffer_id])
    stock(engine, buffer_id)


def scale(stock: Callable[..., Any], engine: Any, grad: Any) -> Any:
    """Leave gradients that have come from a later stage as they are."""
    return stock(engine, grad) if not hasattr(engine, "pipe_buffers") or engine.is_last_stage() else grad


def clip(stock: Callable[..., None], engine: Any) -> None:
    """Clip parameters without dimensions, too, and by the norm of all stages of a pipeline.

    The stock method takes later stages for replicas of a tensor-parallel group.
    """
    import torch
    from deepspeed import comm as dist
    from deepspeed.runtime.utils import is_model_parallel_parameter

    params = [param for param in engine.module.parameters() if param.grad is not None]
    if not hasattr(engine, "pipe_buffers") or engine.has_moe_layers:
        # The stock factor has shape (1,), which does not broadcast into a tensor without dimensions.
        with _flat(param.grad for param in params if not param.dim()):
            stock(engine)
        return
    grid = engine.mpu
    counted = [
        param.grad.float().norm()
        for param in params
        if not param.ds_pipe_replicated
        and (grid.get_slice_parallel_rank() == 0 or is_model_parallel_parameter(param))
    ]
    squares = torch.stack([torch.zeros((), device=engine.device), *counted]).square().sum()
    dist.all_reduce(squares, group=grid.get_model_parallel_group())
    factor = (engine.gradient_clipping() / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for param in params:
        param.grad.mul_(factor)


# ------------------------------------------------------------------------------------- parameters as bytes


def _flatten(params: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Make data that torch does not view as bytes flat; return each such parameter with its former data."""
    former = []
    for param in params:
        data = param.data
        if not data.dim() or data.stride(-1) != 1 or not data.is_contiguous():
            param.data = data.reshape(-1)  # a copy, unless it is contiguous
            former.append((param, data))
    return former


@contextlib.contextmanager
def _flat(params: Iterable[Any]) -> Iterator[None]:
    """Flatten parameters within; afterwards they have their former data with the values that it has got."""
    former = _flatten(params)
    try:
        yield
    finally:
        for param, data in former:
            if param.data.numel() == data.numel():  # else it has been partitioned
                if param.data.data_ptr() != data.data_ptr():
                    data.copy_(param.data.view(data.shape))
                param.data = data


def broadcast_model(stock: Callable[..., None], engine: Any) -> None:
    """Broadcast parameters of every shape and layout; experts, too."""
    with _flat(engine.module.parameters()):
        stock(engine)


def convert(stock: Callable[..., None], init: Any, param: Any) -> None:
    """Make the parameter flat once DeepSpeed has its shape: what is broadcast and partitioned next is flat anyway."""
    stock(init, param)
    _flatten([param])


def patch_apply(stock: Callable[..., None], context: Any) -> None:
    """Flatten what a function has been applied to under zero.Init, before it is broadcast and partitioned."""
    from torch.nn import Module

    stock(context)
    gathering = Module.apply
    if gathering is getattr(Module, "_old_apply", gathering):
        return

    @functools.wraps(gathering)
    def apply(module: Any, function: Callable[[Any], Any]) -> Any:
        def applied(each: Any) -> None:
            function(each)
            _flatten(param for param in each.parameters(recurse=False) if hasattr(param, "ds_id"))

        return gathering(module, function if hasattr(function, "wrapped") else applied)

    Module.apply = apply  # type: ignore[assignment,method-assign]


def leave_gathered(stock: Callable[..., Any], context: Any, *exc: Any) -> Any:
    """Broadcast parameters of every shape, and copy what was edited to the optimizer's float32 parameters."""
    params = context.params if context.src_rank is not None else ()
    with _flat(params):
        result = stock(context, *exc)
    for param in params:
        _copy_edit(param)
    return result


def _copy_edit(param: Any) -> None:
    """Set the float32 elements of this rank that do not round to the parameter's."""
    import torch
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3

    optimizer: Any = getattr(param, "_z3_optimizer", None)
    if type(optimizer) is not DeepSpeedZeroOptimizer_Stage3 or not param.requires_grad:
        return
    master = optimizer.get_local_fp32_param(param)
    value = param.ds_tensor.to(master.device)
    if value.is_floating_point() and value.numel() == master.numel():  # not quantized, not on NVMe
        edited = value.flatten() != master.to(value.dtype)
        if edited.any():
            optimizer.set_local_hp_param(torch.where(edited, value.flatten().to(master.dtype), master), param)


def wait(stock: Callable[..., None], handle: Any, *args: Any, **kwargs: Any) -> None:
    """Gather parameters without elements: the stock method joins the parts of each one, and these have none."""
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    if not handle.complete and (empty := [param for param in handle.params if param.ds_numel == 0]):
        for param in empty:
            param.data = param.ds_tensor.new_empty(param.ds_shape)
            param.ds_status = ZeroParamStatus.AVAILABLE
        handle.params = [param for param in handle.params if param.ds_numel]
    stock(handle, *args, **kwargs)


def set_full(
    stock: Callable[..., None], optimizer: Any, value: Any, param: Any, *args: Any, **kwargs: Any
) -> None:
    """Set this rank's part of a padded parameter, of which the stock method looks for more than there is."""
    import torch
    from deepspeed import comm as dist

    padding = param.padding_size()
    if not padding or value.numel() != param.ds_numel:
        stock(optimizer, value, param, *args, **kwargs)
        return
    padded = torch.nn.functional.pad(value.detach().flatten(), (0, padding))
    part = padded.view(-1, param.partition_numel())[dist.get_rank(group=param.ds_process_group)]
    optimizer.set_local_hp_param(part, param, *args, **kwargs)
