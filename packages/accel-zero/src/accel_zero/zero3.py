# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of methods of DeepSpeedZeroOptimizer_Stage3: stock runs unless gradients are in host memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from accel_zero import host_path
from accel_zero.host_path import HostPath, path_of

Stock = Callable[..., Any]


def average(stock: Stock, self: Any, params: Any, communication_data_type: torch.dtype) -> list[torch.Tensor]:
    """Average over one rank: the gradients are the averages, and this rank's part is all of each."""
    grads = [param.grad for param in params]
    if (
        path_of(self).op is None
        or not self.offload_optimizer
        or self.zenflow
        or self.all2all_process_group is not None
        or communication_data_type != self.dtype
        or not host_path.alone(self, self._get_param_partition_group(params[0]))
        or self._gradient_averaging_world_size(params, 1) != 1
        or not all(grad.is_cpu and grad.dtype == self.dtype and grad.is_contiguous() for grad in grads)
    ):
        averages: list[torch.Tensor] = stock(self, params, communication_data_type)
        return averages
    return [grad.view(-1).to(self.gradient_accumulation_dtype) for grad in grads]


def copy_at_boundary(stock: Stock, self: Any, param: Any, grad: torch.Tensor, *swapped: Any) -> None:
    """Compute the norm of the gradient, and convert and copy it in the same pass."""
    path, number = path_of(self), self.get_param_id(param)
    group = self.grad_position[number][0]
    if (
        path.op is None
        or self.model_parallel_rank != 0  # such a rank counts some norms only
        or self._swappable_optimizer_subgroup(group)
        or not host_path.copyable(grad, destination := _destination(self, number, grad.numel()))
    ):
        stock(self, param, grad, *swapped)
    else:
        total = path.op.copy_gradient(grad.detach().view(-1), destination)
        entry = torch.tensor(math.sqrt(total), dtype=torch.double)
        self.norm_for_param_grads[number] = entry
        path.norms[number] = entry, grad.numel()
    path.written.setdefault(group, set()).add(number)


def _destination(self: Any, number: int, size: int) -> torch.Tensor:
    group, offset, _ = self.grad_position[number]
    whole: torch.Tensor = self.fp32_partitioned_groups_flat[group].grad
    return whole.narrow(0, offset, size)


def complete_norm(stock: Stock, self: Any, params: Any) -> Any:
    """Replace norms of ours by DeepSpeed's until the total has the bits of DeepSpeed's."""
    path, numbers = path_of(self), [self.get_param_id(param) for param in params]

    def stock_norm(number: int) -> torch.Tensor:
        norm: torch.Tensor = self._constant_buffered_norm2(_destination(self, number, path.norms[number][1]))
        return norm

    entries = [(n, self.norm_for_param_grads[n]) for n in numbers if n in self.norm_for_param_grads]
    self.norm_for_param_grads.update(host_path.exact_norms(path, entries, stock_norm))
    return stock(self, params)


def find_overflow(stock: Stock, self: Any, partition_gradients: bool = True) -> bool:
    """Look for overflow in one pass: DeepSpeed's method gets one element that stands for all."""
    op, grads = path_of(self).op, self.grad_partitions_flat_buffer
    if op is None or not partition_gradients or not grads.is_cpu or grads.dtype not in host_path.FLOATS:
        return bool(stock(self, partition_gradients))
    self.grad_partitions_flat_buffer = torch.tensor([op.sum_of_squares(grads)], dtype=torch.double)
    try:
        return bool(stock(self, partition_gradients))
    finally:
        self.grad_partitions_flat_buffer = grads


def unscale(stock: Stock, self: Any, sub_group_id: int, total_norm: Any) -> None:
    """Leave the factor to the kernel of the step, where there is one."""
    path = path_of(self)
    if self.offload_optimizer and not self._swappable_optimizer_subgroup(sub_group_id):
        host_path.rescale_stale_grads(path, sub_group_id, functools.partial(_others, self, sub_group_id))
    if not _fusable(self, path, sub_group_id):
        stock(self, sub_group_id, total_norm)
        return
    partitions = self.fp32_partitioned_groups_flat

    def scale(probe: torch.Tensor) -> None:
        self.fp32_partitioned_groups_flat = {sub_group_id: SimpleNamespace(grad=probe)}
        try:
            stock(self, sub_group_id, total_norm)
        finally:
            self.fp32_partitioned_groups_flat = partitions

    path.factor[sub_group_id] = host_path.factor_of(scale)


def _others(self: Any, group: int, written: set[int]) -> Iterator[torch.Tensor]:
    for param in self.fp16_groups[group]:
        number = self.get_param_id(param)
        if number not in written:
            yield _destination(self, number, self.grad_position[number][2])


def _fusable(self: Any, path: HostPath, group: int) -> str:
    """Return the attribute with the op of the sub-group's step; empty if the step cannot be fused."""
    if (
        not self.offload_optimizer
        or self._swappable_optimizer_subgroup(group)
        or self.subgroup_to_device[group] != "cpu"  # DeepSpeed's name for host memory
        or self.use_muon
        or self.torch_autocast_gradscaler
    ):
        return ""
    return host_path.fusable(self.optimizer, self.fp32_partitioned_groups_flat[group].grad, path)


def step_group(stock: Stock, self: Any, sub_group_id: int) -> None:
    """Step with the factor, and the copy-out where the 16-bit parameters are in host memory, in the kernel."""
    path = path_of(self)
    factor = path.factor.pop(sub_group_id, None)
    if factor is None:
        stock(self, sub_group_id)
        return
    target = self.fp16_partitioned_groups_flat[sub_group_id]
    partition = self.fp32_partitioned_groups_flat[sub_group_id]
    direct = (
        target is not None
        and host_path.copyable(partition.data, target.data)
        and target.data_ptr() != partition.data_ptr()
    )
    copy = target.data if direct else None
    name = _fusable(self, path, sub_group_id)
    if host_path.step_fused(self.optimizer, name, lambda: stock(self, sub_group_id), factor, copy):
        path.unscaled[sub_group_id] = factor
        path.written[sub_group_id] = set()
        if direct:
            path.copied.add(sub_group_id)


def reassign(stock: Stock, self: Any, sub_group_id: int) -> None:
    """Skip the copy-out where the kernel has written the parameters."""
    path = path_of(self)
    if sub_group_id not in path.copied:
        stock(self, sub_group_id)
        return
    path.copied.discard(sub_group_id)
    self._unflatten_partitioned_parameters(sub_group_id)


def reset(stock: Stock, self: Any) -> None:
    """Forget the norms of this step."""
    path_of(self).norms.clear()
    stock(self)
