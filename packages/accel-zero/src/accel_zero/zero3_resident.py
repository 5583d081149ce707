# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of what ZeRO 3 does before and after a module whose parameters are all persistent, and in its step.

Such parameters are gathered after each step and stay so: there is nothing to fetch, wait for or release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from deepspeed import comm as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.zero import parameter_offload, partition_parameters, partitioned_param_coordinator
from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
from deepspeed.utils import z3_leaf_module

from accel_zero import host_path, many_tensors

Stock = Callable[..., Any]
_COORDINATOR = "_PartitionedParameterCoordinator__"
_GRADIENTS = "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition"
_KEPT = "_accel_kept_elements"


def _resident(self: Any, module: Any) -> list[Any] | None:
    """Return the parameters of a module that has nothing to fetch or release; None if stock methods run.

    That is so in a recorded forward and backward pass, when nothing is left to prefetch.
    """
    coordinator = self.get_param_coordinator()
    state = vars(coordinator)
    if (
        state[_COORDINATOR + "param_queue"]
        or state[_COORDINATOR + "inflight_param_registry"]
        or state[_COORDINATOR + "prefetch_nvme"]
        or module.ds_recompute_parameters
        or self.zenflow
        or not coordinator.is_complete_trace()
        or z3_leaf_module(module)
        or partitioned_param_coordinator.ENABLE_PROFILER
        or torch.compiler.is_compiling()
        or type(module).named_parameters is not torch.nn.Module.named_parameters
    ):
        return None
    params = [each for each in module._parameters.values() if each is not None]
    params += module._external_params.values()
    if any(not each.ds_persist or each.ds_status is not ZeroParamStatus.AVAILABLE for each in params):
        return None
    return params


def _fetched(self: Any, module: Any, forward: bool) -> bool:
    """Do what is left of a fetch; False if the stock method has to."""
    params = _resident(self, module)
    if params is None:
        return False
    state = vars(self.get_param_coordinator())
    step, order = state[_COORDINATOR + "step_id"], state[_COORDINATOR + "submodule_order"]
    if step >= len(order) or order[step] is not module:
        return False
    fetched = state[_COORDINATOR + "most_recent_step_id_param_fetched_for"]
    if any(fetched[each] < step for each in params):
        return False  # DeepSpeed reports parameters that are not in the trace
    if forward:
        # DeepSpeed attributes frozen parameters of a recomputed module to the module that is active.
        if torch._C._current_graph_task_id() != -1 and not all(each.requires_grad for each in params):
            return False
        parameter_offload.FWD_MODULE_STACK.append(module)
    else:
        state[_COORDINATOR + "active_backward_submodules"][module.ds_id] = module
    for each in params:
        each.ds_active_sub_modules.add(module.ds_id)
    accelerator = get_accelerator()
    if not accelerator.resolves_data_dependency():
        accelerator.current_stream().wait_stream(state[_COORDINATOR + "allgather_stream"])
    state[_COORDINATOR + "step_id"] = step + 1
    return True


def before_forward(stock: Stock, self: Any, sub_module: Any) -> None:
    """Count the module as active."""
    if not _fetched(self, sub_module, forward=True):
        stock(self, sub_module)


def before_backward(stock: Stock, self: Any, sub_module: Any) -> None:
    """Count the module as active."""
    if not _fetched(self, sub_module, forward=False):
        stock(self, sub_module)


def after_forward(stock: Stock, self: Any, sub_module: Any) -> None:
    """Count the module as inactive."""
    params = _resident(self, sub_module)
    if params is None:
        stock(self, sub_module)
        return
    for each in params:
        each.ds_active_sub_modules.discard(sub_module.ds_id)


def after_backward(stock: Stock, self: Any, sub_module: Any) -> None:
    """Count the module as inactive."""
    params = _resident(self, sub_module)
    active = vars(self.get_param_coordinator())[_COORDINATOR + "active_backward_submodules"]
    if params is None or not active:
        stock(self, sub_module)
        return
    active.pop(sub_module.ds_id, None)
    for each in params:
        each.ds_active_sub_modules.discard(sub_module.ds_id)


def release_all(stock: Stock, self: Any, module: Any) -> None:
    """Release parameters directly that have a partition in memory; the stock method releases the others."""
    state = vars(self)
    left = bool(state[_COORDINATOR + "inflight_param_registry"])
    for param in () if left else partitioned_param_coordinator.iter_params(module, recurse=True):
        if param.ds_status is ZeroParamStatus.NOT_AVAILABLE:
            param.ds_active_sub_modules.clear()
        elif (
            param.ds_status is ZeroParamStatus.AVAILABLE
            and param.ds_tensor is not None
            and param.ds_tensor.final_location != OffloadDeviceEnum.nvme
            and param.ds_zero_param_process_group is None
        ):
            param.ds_active_sub_modules.clear()
            partition_parameters.free_param(param)
            state[_COORDINATOR + "n_available_params"] -= param.ds_numel
        else:
            left = True
    if left:
        stock(self, module)


def add_to_bucket(stock: Stock, self: Any, param: Any) -> None:
    """Leave a small gradient where it is: what is reduced is copied from the gradients, not from the bucket."""
    bucket, size = self.ipg_buckets[self.get_param_comm_dtype(param)], param.grad.numel()
    kept = vars(self).get(_KEPT, 0) if bucket.elements else 0
    if (
        not self.contiguous_gradients
        or not self.reduce_scatter
        or self.zenflow
        or bucket.buffer is None
        or size > many_tensors.SMALL
        or kept + size > many_tensors.CHUNK
        or param.grad.dtype != bucket.buffer.dtype
        or not param.grad.is_contiguous()
    ):
        stock(self, param)
        return
    accelerator = get_accelerator()
    if not accelerator.resolves_data_dependency():
        self.reduce_and_partition_stream.wait_stream(accelerator.current_stream())
    bucket.params.append(param)
    bucket.process_group = self._get_param_partition_group(param)
    bucket.elements += size
    setattr(self, _KEPT, kept + size)


def partition(stock: Stock, self: Any, params_to_release: Any, grad_partitions: Any) -> Any:
    """Copy or add all partitions in one call."""
    flat = self.grad_partitions_flat_buffer
    if (
        self.offload_optimizer
        or self.zenflow
        or self.use_muon
        or not params_to_release
        or not get_accelerator().on_accelerator(flat)
        or any(each.device != flat.device for each in grad_partitions)
    ):
        return stock(self, params_to_release, grad_partitions)
    rank = self._get_param_partition_rank(params_to_release[0])
    sources, targets = [], []
    for param, grad in zip(params_to_release, grad_partitions, strict=False):
        if param.partition_numel() * rank < param.ds_numel:
            self._offload_boundary_param_ids.add(param.ds_id)
            targets.append(vars(self)[_GRADIENTS][param.ds_id].narrow(0, 0, grad.numel()))
            sources.append(grad)
    if targets and self.micro_step_id == 0:
        torch._foreach_copy_(targets, sources)
    elif targets:
        kind = self.gradient_accumulation_dtype
        torch._foreach_add_(
            targets, [each.to(kind).view(target.shape) for each, target in zip(sources, targets, strict=True)]
        )
    for param in params_to_release:
        if param.grad is not None and not get_accelerator().is_synchronized_device():
            param.grad.record_stream(get_accelerator().current_stream())
        param.grad = None
    return targets


def total_norm(stock: Stock, self: Any, gradients: Any, params: Any, norm_type: float = 2) -> Any:
    """Return the norm of a group in one pass, on the CPU."""
    gradients = list(gradients)
    if (
        norm_type != 2
        or self.model_parallel_rank != 0
        or not params
        or len(gradients) != len(params)
        or not host_path.orders_itself()
        or not many_tensors.on_cpu(gradients)
        or self._autoep_expert_parallel_group(params) is not None
    ):
        return stock(self, gradients, params, norm_type)
    self._assert_same_partition_group(params)
    group = self._get_param_partition_group(params[0])
    total = torch.sum(torch.pow(torch.stack(many_tensors.norms(gradients, torch.double)), 2.0))
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
    if not self._grad_norm_counts_every_rank(params, group):
        self._model_parallel_all_reduce(tensor=total, op=dist.ReduceOp.SUM)
    total = total**0.5
    invalid = torch.tensor(-1.0, device=self.device, dtype=torch.float)
    return torch.where(total.isfinite(), total, invalid)
