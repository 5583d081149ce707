# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of methods of DeepSpeedZeroOptimizer (ZeRO 1 and 2) whose gradients are not offloaded.

DeepSpeed has a few small operations for each parameter. These methods have one for each bucket or partition.
docs/engine.md says which, and where stock methods run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param
from deepspeed.runtime.torch_autocast import is_autocast_initialized
from deepspeed.runtime.utils import mask_nan_or_inf_with_val_inplace

from accel_zero import host_path, many_tensors

Stock = Callable[..., Any]
_ATTRIBUTE = "_accel_bucket_path"
_CLASS = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"


@dataclass
class BucketPlan:
    """Constants of a bucket with these parameters.

    params: (group, index in the group, number) of each parameter, as in DeepSpeed's bucket.
    slices: (rank, offset in the bucket, elements) of what is reduced for a rank.
    inside: parameters that this rank updates, and `outside` the others.
    runs:   (offset in the bucket, offset in the copy, elements) of neighbours in `inside`.
    total:  elements of `inside`.
    """

    params: list[tuple[int, int, int]]
    slices: list[tuple[int, int, int]] = field(default_factory=list)
    inside: list[torch.Tensor] = field(default_factory=list)
    outside: list[torch.Tensor] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    total: int = 0


@dataclass
class BucketPath:
    """State of the replaced methods between calls, for one ZeRO optimizer.

    usual:    False if stock methods fill and reduce the current bucket.
    pending:  (offset, gradient) of gradients that are not yet copied into the bucket.
    elements: elements of `pending`.
    plans:    plans by the first parameter of their bucket.
    norms:    norms of gradients by the `id` of their list, from the check for overflow to the total norm.
    places:   by group, the flat tensor and (parameter, address, shape) of each parameter in it.
    """

    usual: bool = False
    pending: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    elements: int = 0
    plans: dict[int, BucketPlan] = field(default_factory=dict)
    norms: dict[int, tuple[torch.Tensor, ...]] = field(default_factory=dict)
    places: dict[int, tuple[int, list[tuple[torch.Tensor, int, torch.Size]]]] = field(default_factory=dict)


def _path(optimizer: Any) -> BucketPath:
    path: BucketPath | None = vars(optimizer).get(_ATTRIBUTE)
    if path is None:
        path = BucketPath()
        setattr(optimizer, _ATTRIBUTE, path)
    return path


def _usual(self: Any) -> bool:
    """True if gradients are those of dense parameters, in one bucket, on one stream."""
    return (
        f"{type(self).__module__}:{type(self).__name__}" == _CLASS
        and self.contiguous_gradients
        and self.reduce_scatter
        and len(self.ipg_buckets) == 1
        and self.gradient_accumulation_dtype == self.dtype
        and not (self.cpu_offload or self.zenflow or self.overlap_comm or self.has_moe_layers)
        and not self.use_grad_accum_attribute
        and self.autoep_folding_tp_group is None
        and not is_autocast_initialized()
        and "muon" not in type(self.optimizer).__name__.lower()
    )


def set_up(stock: Stock, self: Any) -> None:
    """Allocate buckets of at most the size of all parameters."""
    limit = self.reduce_bucket_size
    self.reduce_bucket_size = min(limit, sum(flat.numel() for flat in self.bit16_groups_flat))
    try:
        stock(self)
    finally:
        self.reduce_bucket_size = limit


def add_to_bucket(stock: Stock, self: Any, param: Any, group: int) -> None:
    """Give the gradient its place in the bucket; small ones are copied later, many at a time."""
    path, size, grad = _path(self), param.numel(), param.grad
    bucket = self.ipg_buckets.get(self.communication_data_type)
    if bucket is None or not bucket.elements:
        path.usual = bucket is not None and _usual(self)
    if (
        not path.usual
        or not 0 < size <= many_tensors.SMALL
        or bucket.elements + size > self.reduce_bucket_size
        or grad is None
        or grad.dtype != self.dtype
        or grad.layout is not torch.strided
        or not grad.is_contiguous()
        or not getattr(param, "ds_grad_is_ready", True)
        or is_moe_param(param)
        or self.params_already_reduced[number := self.param_id[id(param)]]
    ):
        stock(self, param, group)
        return
    path.pending.append((bucket.elements, grad))
    path.elements += size
    bucket.elements += size
    bucket.grads.append(grad)
    bucket.params.append((group, param.param_idx_in_group, number))
    if path.elements > many_tensors.CHUNK:
        _fill(path, bucket, point=True)


def _fill(path: BucketPath, bucket: Any, point: bool) -> None:
    """Copy the pending gradients into the bucket; with `point`, they become views of it, as DeepSpeed's are."""
    pending, path.pending, path.elements = path.pending, [], 0
    begin = 0
    for index in range(1, len(pending) + 1):
        offset, grad = pending[index - 1]
        end = offset + grad.numel()
        if index < len(pending) and pending[index][0] == end:
            continue
        grads = [each for _, each in pending[begin:index]]
        start = pending[begin][0]
        part = bucket.buffer[bucket.index].narrow(0, start, end - start)
        part.copy_(many_tensors.flat(grads))
        if point:
            for each, view in zip(grads, many_tensors.views(part, grads), strict=True):
                each.data = view
        begin = index


def reduce(stock: Stock, self: Any, comm_dtype: torch.dtype | None = None) -> None:
    """Reduce the bucket, and copy what this rank updates in one piece per run of parameters."""
    path = _path(self)
    dtype = self.communication_data_type
    bucket = self.ipg_buckets.get(dtype)
    plan = None
    if path.usual and comm_dtype in (None, dtype) and not self.extra_large_param_to_reduce:
        plan = _plan(self, path, bucket)
    if path.pending:
        _fill(path, bucket, point=plan is None)
    if plan is None:
        stock(self, comm_dtype)
        return
    buffer = bucket.buffer[bucket.index].narrow(0, 0, bucket.elements)
    self.average_tensor(buffer, dtype)
    for _, _, number in plan.params:
        self.params_already_reduced[number] = True
    if self.partition_gradients:
        for param in plan.outside:
            param.grad = None
    if buffer.is_cpu and not plan.outside:
        # This rank updates all of it: the gradients stay here. Memory of another bucket is taken when it is written.
        _point(plan, buffer)
        bucket.buffer[bucket.index] = torch.empty_like(bucket.buffer[bucket.index])
    elif plan.inside:
        _point(plan, _copied(self, plan, buffer))
    bucket.clear()


def _point(plan: BucketPlan, vector: torch.Tensor) -> None:
    """Make the gradients views of the vector."""
    for param, view in zip(plan.inside, many_tensors.views(vector, plan.inside), strict=True):
        cast(torch.Tensor, param.grad).data = view


def _copied(self: Any, plan: BucketPlan, buffer: torch.Tensor) -> torch.Tensor:
    """Return a copy of what this rank updates, in the tensor that DeepSpeed has for it."""
    if self.grads_in_partition is None:
        size = sum(param.numel() for group in self.params_in_partition for param in group)
        self.grads_in_partition = torch.empty(size, dtype=self.dtype, device=buffer.device)
        self.grads_in_partition_offset = 0
    kept: torch.Tensor = self.grads_in_partition.narrow(0, self.grads_in_partition_offset, plan.total)
    for source, destination, size in plan.runs:
        kept.narrow(0, destination, size).copy_(buffer.narrow(0, source, size))
    self.grads_in_partition_offset += plan.total
    return kept


def _plan(self: Any, path: BucketPath, bucket: Any) -> BucketPlan | None:
    """Return the plan of a bucket; None if the bucket is empty or unusual."""
    if not bucket.params or bucket.has_moe_params:
        return None
    first = bucket.params[0][2]
    plan = path.plans.get(first)
    if plan is None or plan.params != bucket.params:
        if len({number for _, _, number in bucket.params}) != len(bucket.params):
            return None  # DeepSpeed reports parameters that are reduced twice
        plan = path.plans[first] = _new_plan(self, list(bucket.params))
    return plan


def _new_plan(self: Any, params: list[tuple[int, int, int]]) -> BucketPlan:
    plan, position = BucketPlan(params), 0
    for group, index, number in params:
        param = self.bit16_groups[group][index]
        size, starts = param.numel(), self.grad_start_offset[group]
        bounds = sorted((starts[rank][number], rank) for rank in self.param_to_partition_ids[group][number])
        ends = [offset for offset, _ in bounds[1:]] + [size]
        begin = position
        for (offset, rank), end in zip(bounds, ends, strict=True):
            if plan.slices and plan.slices[-1][0] == rank:
                _, first, length = plan.slices.pop()
                plan.slices.append((rank, first, length + end - offset))
            else:
                plan.slices.append((rank, begin, end - offset))
            begin += end - offset
        if self.is_param_in_current_partition[number]:
            plan.inside.append(param)
            if plan.runs and sum(plan.runs[-1][::2]) == position:
                source, destination, length = plan.runs[-1]
                plan.runs[-1] = source, destination, length + size
            else:
                plan.runs.append((position, plan.total, size))
            plan.total += size
        else:
            plan.outside.append(param)
        position += size
    return plan


def average(stock: Stock, self: Any, tensor: torch.Tensor, communication_data_type: torch.dtype) -> None:
    """Average the slices of a plan; over one rank, nothing is to be done."""
    path = _path(self)
    plan = None
    if path.usual and tensor.dtype == communication_data_type and not path.pending:
        plan = _plan(self, path, self.ipg_buckets[communication_data_type])
    if plan is None or tensor.numel() != sum(size for _, _, size in plan.slices):
        stock(self, tensor, communication_data_type)
        return
    group = self.dp_process_group
    if host_path.alone(self, group) and self.sequence_parallel_size == 1:
        return
    if self.gradient_average:
        tensor.div_(dist.get_world_size(group) / float(self.sequence_parallel_size))
    parts = [(rank, tensor.narrow(0, offset, size)) for rank, offset, size in plan.slices]
    limit = self.reduce_bucket_size
    if self.use_multi_rank_bucket_allreduce:
        self.allreduce_and_scatter(
            parts, communication_data_type, numel_per_bucket=limit, divide=False, process_group=group
        )
        return
    for rank in dict.fromkeys(rank for rank, _ in parts):
        self.allreduce_no_retain(
            [part for owner, part in parts if owner == rank], communication_data_type, numel_per_bucket=limit,
            rank=rank, divide=False, process_group=group,
        )  # fmt: skip


def partition(
    stock: Stock, self: Any, tensor_list: Any, first_offset: int, partition_size: int, dtype: torch.dtype,
    device: Any, param_group_idx: int, return_tensor_list: bool = False,
) -> Any:  # fmt: skip
    """Return the gradients of a partition; only the first and the last one may be cut."""
    grads = list(self.all_grad_tensors.get(param_group_idx) or ())
    sizes = [grad.numel() for grad in grads] or [0]
    rest = int(partition_size) - sum(sizes) + first_offset
    sizes[0] -= first_offset
    sizes[-1] += min(rest, 0)
    usual = return_tensor_list and len(grads) == len(tensor_list) and not self._is_muon_group(tensor_list)
    if not usual or min(sizes) <= 0:
        return stock(
            self,
            tensor_list,
            first_offset,
            partition_size,
            dtype,
            device,
            param_group_idx,
            return_tensor_list,
        )
    for index, offset in {0: first_offset, len(grads) - 1: 0 if len(grads) > 1 else first_offset}.items():
        if sizes[index] < grads[index].numel():
            grads[index] = grads[index].contiguous().view(-1).narrow(0, offset, sizes[index])
    if rest > 0:
        grads.append(torch.zeros(rest, dtype=dtype, device=device))
    return grads


def overflow(stock: Stock, self: Any) -> Any:
    """Look for overflow once for all gradients; on the CPU their norms show it, which the total norm needs."""
    path = _path(self)
    path.norms.clear()
    groups = [self.averaged_gradients[group] for group in range(len(self.bit16_groups))]
    every = [grad for grads in groups for grad in grads if grad is not None]
    invalid: torch.Tensor | None
    if self.compute_grad_norm and every and _exact(every):
        for grads in groups:
            path.norms[id(grads)] = many_tensors.norms(
                [grad for grad in grads if grad is not None], torch.double
            )
        invalid = (
            torch.stack([norm for each in path.norms.values() for norm in each])
            .isfinite()
            .all()
            .logical_not()
        )
    else:
        invalid = many_tensors.any_invalid(every)
    return stock(self) if invalid is None else invalid.view(1)


def _exact(gradients: Sequence[torch.Tensor]) -> bool:
    """True if norms of a list have the bits of DeepSpeed's."""
    return host_path.orders_itself() and many_tensors.on_cpu(gradients)


def total_norm(stock: Stock, self: Any, gradients: Any, params: Any, norm_type: float = 2) -> Any:
    """Return the norm of a group from the norms that `overflow` has computed, or in one pass."""
    norms = _path(self).norms.pop(id(gradients), None)
    if (
        norm_type != 2
        or self.model_parallel_rank != 0
        or not params
        or any(getattr(param, "ds_pipe_replicated", False) for param in params)
        or not _exact(gradients)
    ):
        return stock(self, gradients, params, norm_type)
    if norms is None or not self.check_grad_overflow:
        norms = many_tensors.norms(gradients, torch.double)
    shown = [
        norm for norm, grad in zip(norms, gradients, strict=True) if not getattr(grad, "_zero_padding", False)
    ]
    total = torch.stack(shown[: len(params)]).pow(2.0).sum().float()
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.dp_process_group)
    self._model_parallel_all_reduce(tensor=total, op=dist.ReduceOp.SUM)
    total = total.pow(0.5)
    mask_nan_or_inf_with_val_inplace(total, device=self.device)
    return total


def point_to_weights(stock: Stock, self: Any, group_index: int) -> None:
    """Leave parameters alone that are views of the flat tensor, as they are from the first step on."""
    path, start = _path(self), self.bit16_groups_flat[group_index].data_ptr()
    known, places = path.places.get(group_index, (0, []))
    if known == start and all(
        param.data_ptr() == place and param.shape == shape for param, place, shape in places
    ):
        return
    stock(self, group_index)
    params = [param for param in self.bit16_groups[group_index] if param.numel()]
    path.places[group_index] = start, [(param, param.data_ptr(), param.shape) for param in params]
