# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers, in place, over lists of tensors in host memory.

Parameters, gradients and states may each be float32, bfloat16 or float16; the arithmetic is float32. `copies`, if
given, take the updated parameters in a type of their own, in the same pass over memory. `grad_factor` multiplies
the gradients first: a loss scale's inverse, a clip coefficient (from `sum_of_squares`), or their product. Where the
library can not be had the same is computed in plain torch. Raises `InvalidTensors` for other types or devices, sizes
that differ and shared memory, before anything is written. Autograd is told of the writes by `accel_host.optim` alone.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from accel_host import binding, library, plain
from accel_host.operands import (
    TYPES,
    Operands,
    Roles,
    Tensors,
    grouped,
    refuse,
    refuse_misfits,
    refuse_shared,
)


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float = 0.0,
    decoupled: bool = True,
    bias_correction: bool = True,
    grad_factor: float = 1.0,
    copies: Tensors | None = None,
    rollback: bool = False,
) -> None:
    """Adam, or AdamW where the decay is decoupled; `step` counts from 1. Source: arXiv:1412.6980, arXiv:1711.05101.

    rollback: from the values after the step, and its gradients, back to those before it, but for rounding.
    """
    _refuse_step(step)
    if rollback and not (beta1 and beta2 and (not decoupled or lr * weight_decay != 1)):
        raise ValueError(
            f"a step with betas {beta1}, {beta2} and decay {lr * weight_decay} forgets what was before it"
        )
    options = binding.AdamOptions(
        lr, beta1, beta2, eps, weight_decay, grad_factor, step, decoupled, bias_correction
    )
    roles = _roles(params, grads, exp_avgs, exp_avg_sqs, copies=copies)
    _run("adam_rollback" if rollback else "adam", roles, options)


def adam_single_tensor(
    param: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    bias_correction: bool,
    grad_factor: float = 1.0,
) -> bool:
    """`adam` on one contiguous tensor, for a call's cost of two microseconds; False where it is not for it."""
    functions = library.load().functions
    size = param.numel()
    kind, state = TYPES.get(param.dtype), TYPES.get(exp_avg.dtype)
    if (
        functions is None or kind is None or state is None or step < 1
        or grad.dtype is not param.dtype or exp_avg_sq.dtype is not exp_avg.dtype
        or grad.layout is not torch.strided or grad.is_neg()
        or not (param.is_cpu and grad.is_cpu and exp_avg.is_cpu and exp_avg_sq.is_cpu)
        or not (size == grad.numel() == exp_avg.numel() == exp_avg_sq.numel())
        or not (param.is_contiguous() and grad.is_contiguous())
        or not (exp_avg.is_contiguous() and exp_avg_sq.is_contiguous())
    ):  # fmt: skip
        return False
    addresses = param.data_ptr(), grad.data_ptr(), exp_avg.data_ptr(), exp_avg_sq.data_ptr()
    if not all(addresses):
        return False
    status = functions.accel_adam_single_tensor(
        binding.ADAM_SINGLE.pack(
            *addresses, size, kind, kind, state, torch.get_num_threads(),
            lr, beta1, beta2, eps, weight_decay, grad_factor, step, decoupled, bias_correction,
        )
    )  # fmt: skip
    _check(status)
    return True


def adagrad(
    params: Tensors,
    grads: Tensors,
    sums: Tensors,
    *,
    lr: float,
    eps: float,
    weight_decay: float = 0.0,
    grad_factor: float = 1.0,
    copies: Tensors | None = None,
) -> None:
    """Adagrad. Source: Duchi, Hazan and Singer, JMLR 12 (2011)."""
    _run("adagrad", _roles(params, grads, sums, copies=copies), lr, eps, weight_decay, grad_factor)


def lion(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float = 0.0,
    grad_factor: float = 1.0,
    copies: Tensors | None = None,
) -> None:
    """Lion; sign(0) is 0, as in the paper. Source: arXiv:2302.06675."""
    _run("lion", _roles(params, grads, exp_avgs, copies=copies), lr, beta1, beta2, weight_decay, grad_factor)


def sgd(
    params: Tensors,
    grads: Tensors,
    momenta: Tensors,
    *,
    lr: float,
    momentum: float,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    first_step: bool = False,
    grad_factor: float = 1.0,
    copies: Tensors | None = None,
) -> None:
    """SGD with momentum as torch.optim.SGD has it: in the first step the momentum is the gradient."""
    arguments = (lr, momentum, dampening, weight_decay, grad_factor, nesterov, first_step)
    _run("sgd", _roles(params, grads, momenta, copies=copies), *arguments)


def sum_of_squares(tensors: Tensors) -> float:
    """Sum over all elements, in float64; infinite or NaN where one is. The same bits for any number of threads."""
    result = ctypes.c_double()
    total = 0.0
    for roles in grouped({"grads": tensors}):
        _run("sum_of_squares", roles, result)
        total += result.value
    return total


def zeros_like(tensors: Tensors) -> list[torch.Tensor]:
    """Zeros like each, first touched by the threads that will step on them in one call (NUMA)."""
    fresh = [torch.empty_like(tensor) for tensor in tensors]
    functions = library.load().functions
    if functions is None or not all(type(t) is torch.Tensor and t.is_cpu and t.dtype in TYPES for t in fresh):
        return [tensor.zero_() for tensor in fresh]
    for group in grouped({"first": fresh}):
        _check(Operands(group).given_to(functions.accel_zero))
    return fresh


def _roles(
    params: Tensors, grads: Tensors, first: Tensors, second: Tensors | None = None, *, copies: Tensors | None
) -> Roles:
    roles = {"params": params, "grads": grads, "first": first}
    if second is not None:
        roles["second"] = second
    if copies is not None:
        roles["copies"] = copies
    return roles


def _run(kernel: str, roles: Roles, *arguments: Any) -> None:
    """All is checked before the first group is stepped on."""
    groups = list(grouped(roles))
    functions = library.load().functions
    if functions is None or len(groups) > 1:
        refuse_shared(roles)
    if functions is None:
        for group in groups:
            refuse_misfits(group)
        with torch.no_grad():
            for group in groups:
                getattr(plain, kernel)(group, *arguments)
        return
    operands = [Operands(group) for group in groups]
    for each in operands:
        _check(each.given_to(getattr(functions, f"accel_{kernel}"), *arguments))
        each.write_back()


def _check(status: int) -> None:
    if status == binding.OVERLAP:
        refuse("a written tensor that shares memory with another", "memory of its own for each")
    if status == binding.NO_MEMORY:
        raise MemoryError("a host kernel found no memory for its sums")
    if status != binding.OK:
        raise RuntimeError(
            f"a host kernel ended with status {status}: types were checked before, so a fault of accel-host"
        )


def _refuse_step(step: int) -> None:
    if step < 1:
        raise ValueError(f"steps of Adam count from 1, this is step {step}")
