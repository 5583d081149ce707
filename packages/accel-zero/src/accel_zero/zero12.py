# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of methods of DeepSpeedZeroOptimizer (ZeRO 1 and 2): stock runs unless gradients are in host memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from deepspeed import comm as dist

from accel_zero import host_path
from accel_zero.host_path import HostPath, path_of

Stock = Callable[..., Any]


def _slices(self: Any, param: Any) -> tuple[torch.Tensor | None, int, int, torch.Tensor]:
    """Return the gradient, the bounds of the part that this rank updates, and where the optimizer wants it."""
    group, start, offset, size = self.grad_position[self.get_param_id(param)]
    grad = self.get_param_gradient_attribute(param)
    grad = param.grad if grad is None else grad
    return (
        grad,
        start,
        size,
        self.single_partition_of_fp32_groups[group].grad.view(-1).narrow(0, offset, size),
    )


def _takes(self: Any, path: HostPath, grad: torch.Tensor | None, destination: torch.Tensor) -> bool:
    return (
        path.op is not None and self.model_parallel_world_size == 1 and host_path.copyable(grad, destination)
    )


def accumulate(stock: Stock, self: Any, param: Any) -> None:
    """Add the gradient to those of earlier micro-batches in one pass; at the boundary `norm` does that."""
    path, number = path_of(self), self.get_param_id(param)
    if path.op is None:  # ZenFlow's optimizers have no gradient to slice
        stock(self, param)
        return
    grad, _, size, destination = _slices(self, param)
    kept = self.accumulated_grads_in_cpu.get(number)
    if (
        not _takes(self, path, grad, destination)
        or grad is None
        or self.low_precision_master_weights_and_grads
        or self.cpu_offload_pin_memory
        or size != param.numel()
        or grad.dtype != param.dtype
        or (self.micro_step_id > 0 and kept is None)
        or (kept is not None and (not kept.is_cpu or not kept.is_contiguous()))
    ):
        stock(self, param)
        return
    if kept is None:
        kept = self.accumulated_grads_in_cpu[number] = torch.empty(param.numel(), dtype=param.dtype)
    add = self.micro_step_id > 0
    if self.is_gradient_accumulation_boundary():
        path.add[number] = add
    else:
        path.op.copy_gradient(grad.detach().view(-1), accumulated=kept, add=add)


def norm(stock: Stock, self: Any, param: Any) -> None:
    """Compute the norm of the gradient, and convert and copy it in the same pass."""
    path, number = path_of(self), self.get_param_id(param)
    if path.op is None:  # ZenFlow's optimizers have no gradient to slice
        stock(self, param)
        return
    grad, start, size, destination = _slices(self, param)
    if not _takes(self, path, grad, destination):
        stock(self, param)
        return
    assert grad is not None
    flat = grad.detach().view(-1)
    add = path.add.pop(number, None)
    total = path.op.copy_gradient(
        flat.narrow(0, start, size),
        destination,
        accumulated=None if add is None else self.accumulated_grads_in_cpu[number],
        add=bool(add),
    )
    rest = [part for part in (flat[:start], flat[start + size :]) if part.numel()]
    _record(self, path, number, total, size)
    path.finite[number] = all(map(math.isfinite, (total, *map(path.op.sum_of_squares, rest))))


def _record(self: Any, path: HostPath, number: int, total: float, size: int) -> None:
    entry = torch.tensor(math.sqrt(total), dtype=torch.double)
    self.norm_for_param_grads[number] = entry
    path.norms[number] = entry, size
    path.written.setdefault(self.grad_position[number][0], set()).add(number)


def track_overflow(stock: Stock, self: Any, param: Any) -> None:
    """Take the overflow from the norm, which is infinite or NaN where an element is."""
    finite = path_of(self).finite.get(self.get_param_id(param))
    if finite is None:
        stock(self, param)
    elif not finite:
        self.local_overflow = True


def copy(stock: Stock, self: Any, param: Any) -> None:
    """Release the gradient, which `norm` has copied."""
    path, number = path_of(self), self.get_param_id(param)
    if path.finite.pop(number, None) is None:
        stock(self, param)
        path.written.setdefault(self.grad_position[number][0], set()).add(number)
    else:
        self.clear_grad_attribute(param)


def copy_in_partition(stock: Stock, self: Any, param: Any, group_idx: int | None = None) -> None:
    """Copy a gradient that was accumulated in float32, with its norm and overflow in the same pass."""
    path = path_of(self)
    if group_idx is None:
        group_idx = self._get_param_group_idx(param)
    if not (
        path.op is not None
        and self.cpu_offload
        and self.is_gradient_accumulation_boundary()
        and self._use_compact_grad_partition_buffer(group_idx)
    ):
        stock(self, param, group_idx)
        return
    number = self.get_param_id(param)
    _, _, _, destination = _slices(self, param)
    rank = dist.get_rank(self.real_dp_process_group[group_idx])
    source = self._get_compact_grad_partition_slice(group_idx, rank, number, destination.numel())
    if not _takes(self, path, source, destination):
        stock(self, param, group_idx)
        path.written.setdefault(group_idx, set()).add(number)
        return
    self._offload_accumulated_param_ids.add(number)
    total = path.op.copy_gradient(source, destination)
    _record(self, path, number, total, source.numel())
    if not math.isfinite(total):
        self.local_overflow = True
    self.clear_grad_attribute(param)


def complete_norm(stock: Stock, self: Any, params: Any) -> Any:
    """Replace norms of ours by DeepSpeed's until the total has the bits of DeepSpeed's."""
    path = path_of(self)

    def stock_norm(number: int) -> torch.Tensor:
        group, _, offset, size = self.grad_position[number]
        grad: torch.Tensor = self.single_partition_of_fp32_groups[group].grad
        norm: torch.Tensor = grad.view(-1).narrow(0, offset, size).to(torch.double).norm(2)
        return norm

    # DeepSpeed does not count parameters that pipeline stages share.
    numbers = [
        self.get_param_id(param) for param in params if not getattr(param, "ds_pipe_replicated", False)
    ]
    entries = [(n, self.norm_for_param_grads[n]) for n in numbers if n in self.norm_for_param_grads]
    self.norm_for_param_grads.update(host_path.exact_norms(path, entries, stock_norm))
    return stock(self, params)


def unscale(stock: Stock, self: Any, grads: Any, total_norm: Any) -> None:
    """Leave the factor to the kernel of the step, where there is one."""
    path = path_of(self)
    group = next((i for i, p in enumerate(self.single_partition_of_fp32_groups) if p.grad is grads[0]), None)
    if group is None or not self.cpu_offload:
        stock(self, grads, total_norm)
        return
    host_path.rescale_stale_grads(path, group, functools.partial(_others, self, group))
    if self.torch_autocast_gradscaler or not host_path.fusable(self.optimizer, grads[0], path):
        stock(self, grads, total_norm)
        return
    path.factor[group] = host_path.factor_of(lambda probe: stock(self, [probe], total_norm))


def _others(self: Any, group: int, written: set[int]) -> Iterator[torch.Tensor]:
    for param in self.params_in_partition[group]:
        if self.get_param_id(param) not in written:
            yield _slices(self, param)[3]


def step_group(stock: Stock, self: Any, group: int) -> None:
    """Step with the factor and the copy-out in the kernel; the transfer to a device begins while it runs."""
    path = path_of(self)
    factor = path.factor.pop(group, None)
    if factor is None:
        stock(self, group)
        return
    buffers = self.param_buffer_of_bit16_for_cpu_offload_groups
    rank = dist.get_rank(self.real_dp_process_group[group])
    target = self.parallel_partitioned_bit16_groups[group][rank].data
    buffer = buffers[group]
    written = target if target.is_cpu else buffer

    def transfer(begin: int, end: int) -> None:
        target[begin:end].copy_(buffer[begin:end], non_blocking=True)

    name = host_path.fusable(self.optimizer, self.single_partition_of_fp32_groups[group].grad, path)
    if host_path.step_fused(
        self.optimizer, name, lambda: stock(self, group), factor, written, None if target.is_cpu else transfer
    ):
        path.unscaled[group] = factor
        path.written[group] = set()
        path.buffers[group] = buffer
        buffers[group] = buffer.as_subclass(Written)


def forget(stock: Stock, self: Any) -> None:
    """Forget the norms of this step."""
    path = path_of(self)
    path.norms.clear()
    path.finite.clear()
    path.add.clear()
    stock(self)


def reset(stock: Stock, self: Any) -> None:
    """Put the buffers of the copy-out back."""
    path = path_of(self)
    for group, buffer in path.buffers.items():
        self.param_buffer_of_bit16_for_cpu_offload_groups[group] = buffer
    path.buffers.clear()
    stock(self)


class Written(torch.Tensor):
    """The buffer through which DeepSpeed's `step` copies the parameters out, after the kernel has done that.

    `copy_` into it and from it does nothing.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Skip `copy_`."""
        if func is torch.Tensor.copy_:
            return args[0]
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def average(stock: Stock, self: Any, tensor: torch.Tensor, communication_data_type: torch.dtype) -> None:
    """Average over one rank: nothing is to be done."""
    bucket = self.ipg_buckets[communication_data_type]
    if (
        path_of(self).op is None
        or not self.cpu_offload
        or not tensor.is_cpu
        or tensor.dtype != communication_data_type
        or not host_path.alone(self, self.dp_process_group)
        or self.has_moe_layers
        or self.sequence_parallel_size != 1
        or any(self._use_compact_grad_partition_buffer(group) for group, _, _ in bucket.params)
    ):
        stock(self, tensor, communication_data_type)
