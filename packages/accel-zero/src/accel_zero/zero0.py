# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of methods of DeepSpeed's optimizers without ZeRO: bf16 and fp16, and clipping in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from deepspeed import comm as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.moe.utils import is_moe_param
from deepspeed.runtime import utils
from deepspeed.utils import groups

from accel_zero import many_tensors

Stock = Callable[..., Any]


def overflow(stock: Stock, self: Any, params: Any) -> bool:
    """Look for overflow many gradients at a time."""
    params = list(params)
    grads = [param.grad.data for param in params if param.grad is not None]
    invalid = many_tensors.any_invalid(grads)
    return bool(stock(self, params)) if invalid is None else bool(invalid.item())


def _norms(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
    """Return norms in float32 if DeepSpeed's have the same bits."""
    if tensors and get_accelerator().current_device_name() == "cpu" and many_tensors.on_cpu(tensors):
        return many_tensors.norms(tensors, torch.float)
    return None


def weight_norm(stock: Stock, parameters: Any, norm_type: float = 2, mpu: Any = None) -> Any:
    """Return the norm of all tensors; their squares are added one after the other, in float32."""
    tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    usual = norm_type == 2 and mpu is None
    norms = (
        _norms([each.data for each in tensors if not getattr(each, "ds_pipe_replicated", False)])
        if usual
        else None
    )
    if norms is None:
        return stock(tensors, norm_type, mpu)
    squares = torch.stack(norms).pow(2.0).numpy()
    with np.errstate(over="ignore"):
        total = float(np.add.accumulate(squares)[-1]) ** 0.5
    return total if np.isfinite(total) else -1


def clip(stock: Stock, parameters: Any, max_norm: float, norm_type: float = 2, mpu: Any = None) -> Any:
    """Clip gradients in float32 by their norm over all of them."""
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    grads = [param.grad.data for param in params if param.grad is not None]
    usual = norm_type == 2 and mpu is None and all(grad.dtype == torch.float32 for grad in grads)
    norms = _norms(grads) if usual else None
    if norms is None:
        return stock(params, max_norm, norm_type, mpu)
    group = groups._get_data_parallel_group()
    total = torch.stack(norms).pow(2.0).sum().pow(0.5) * 1.0 / float(dist.get_world_size(group=group))
    dist.all_reduce(total, group=group)
    limit = torch.tensor(float(max_norm))  # a number divided by a tensor has other bits
    torch._foreach_mul_(grads, torch.min(torch.tensor(1.0), limit / (total + 1e-6)))
    return total


def _plain(self: Any) -> bool:
    """True if all gradients of a group have its type, on one device, and nobody measures parts of the step."""
    for group in self.fp16_groups:
        if not group:
            return False
        dtype, device = group[0].dtype, group[0].device
        for param in group:
            grad = param.grad
            if param.dtype != dtype or param.device != device or not param.numel() or is_moe_param(param):
                return False
            if grad is not None and (
                grad.dtype != dtype or grad.device != device or grad.layout is not torch.strided
            ):
                return False
    timers = getattr(self, "timers", None)
    return self.mpu is None and (not timers or type(timers).__name__ == "NoopTimer")


def _gradients(group: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros_like(param) if param.grad is None else param.grad for param in group]


def step_flat(stock: Stock, self: Any, closure: Any = None) -> Any:
    """Step with flat master parameters: gradients are flattened, then converted; parameters are copied in one call."""
    if self.fused_adam_legacy or self.has_moe_layers or not _plain(self):
        return stock(self, closure)
    params = [param for group in self.fp16_groups for param in group if param.grad is not None]
    self.overflow = self.overflow_checker.has_overflow(params)
    if self.overflow:
        return self._skip_invalid_grad_norm()
    for group, master in zip(self.fp16_groups, self.fp32_groups_flat, strict=True):
        master.grad = many_tensors.flat(_gradients(group)).to(master.dtype)
        if not self.has_executed_step:
            self.flatten_grad_norm_mask_list.append(self._get_norm_mask_idx(group))
        for param in group:
            param.grad = None
    masks = self.flatten_grad_norm_mask_list
    found = utils.get_flattened_grad_norm(self.fp32_groups_flat, mpu=self.mpu, grad_norm_mask=masks)
    norm = utils.get_global_norm(norm_list=[found])
    if utils.is_invalid_grad_norm(norm):
        return self._skip_invalid_grad_norm()
    if self.loss_scale_config.use_grad_scaling:
        self._update_scale(False)
    self._global_grad_norm = norm / self.loss_scale_config.cur_scale
    self.unscale_and_clip_grads([master.grad for master in self.fp32_groups_flat], norm)
    self.optimizer.step()
    for group, master in zip(self.fp16_groups, self.fp32_groups_flat, strict=True):
        master.grad = None
        torch._foreach_copy_([param.data for param in group], list(many_tensors.views(master.data, group)))
    self.has_executed_step = True
    return self.overflow


def step_each(stock: Stock, self: Any, closure: Any = None) -> Any:
    """Step with one master parameter for each parameter; their gradients are parts of a flat tensor."""
    if self.fused_lamb_legacy or not _plain(self):
        return stock(self, closure)
    self.overflow = self.overflow_checker.check()
    if self.overflow:
        return self._skip_invalid_grad_norm()
    norms, flat = [], []
    for masters, group in zip(self.fp32_groups, self.fp16_groups, strict=True):
        found = [param.grad for param in group if param.grad is not None]
        norms.append(utils.get_weight_norm(found, mpu=self.mpu) if found else 0.0)
        flat.append(many_tensors.flat(_gradients(group)).to(masters[0].dtype))
        for master, grad in zip(masters, many_tensors.views(flat[-1], masters), strict=True):
            master.grad = grad
    self._global_grad_norm = utils.get_global_norm(norm_list=norms)
    if utils.is_invalid_grad_norm(self._global_grad_norm):
        return self._skip_invalid_grad_norm()
    self._update_scale(False)
    scale = self.unscale_and_clip_grads(self._global_grad_norm, apply_scale=False)
    for each in flat:
        each.mul_(1.0 / scale)
    self.optimizer.step()
    for masters, group in zip(self.fp32_groups, self.fp16_groups, strict=True):
        for master in masters:
            master.grad = None
        torch._foreach_copy_([param.data for param in group], [master.data for master in masters])
    return self.overflow
