# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers, in place, over lists of tensors in host memory.

Parameters, gradients and states may each be float32, bfloat16 or float16; the arithmetic is float32. `copies`, if
given, take the updated parameters in a type of their own, in the same pass over memory. `grad_factor` multiplies
the gradients first: a loss scale's inverse, a clip coefficient, or their product. Where the library can not be had
the same is computed in plain torch. Raises `InvalidTensors` for other types or devices, sizes that differ and
shared memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from accel_host import binding, library, plain
from accel_host.operands import TYPES, Operands, Tensors, grouped, refuse, refuse_misfits


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
    options = binding.AdamOptions(
        lr, beta1, beta2, eps, weight_decay, grad_factor, step, decoupled, bias_correction
    )
    roles = _roles(params, grads, exp_avgs, exp_avg_sqs, copies=copies)
    _run("adam_rollback" if rollback else "adam", roles, options)


def adam_one(
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
        or grad.layout is not torch.strided
        or not (param.is_cpu and grad.is_cpu and exp_avg.is_cpu and exp_avg_sq.is_cpu)
        or not (size == grad.numel() == exp_avg.numel() == exp_avg_sq.numel())
        or not (param.is_contiguous() and grad.is_contiguous())
        or not (exp_avg.is_contiguous() and exp_avg_sq.is_contiguous())
    ):  # fmt: skip
        return False
    _check(
        functions.accel_adam_one(
            binding.ADAM_SINGLE.pack(
                param.data_ptr(), grad.data_ptr(), exp_avg.data_ptr(), exp_avg_sq.data_ptr(), size,
                kind, kind, state, torch.get_num_threads(),
                lr, beta1, beta2, eps, weight_decay, grad_factor, step, decoupled, bias_correction,
            )
        )
    )  # fmt: skip
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


def zeros_like(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Zeros like a host tensor, first touched by the threads that will step on them (NUMA)."""
    fresh = torch.empty_like(tensor, dtype=dtype)
    functions = library.load().functions
    if functions is None or not fresh.is_contiguous():
        return fresh.zero_()
    functions.accel_zero(fresh.data_ptr(), fresh.nbytes, torch.get_num_threads())
    return fresh


def _roles(
    params: Tensors, grads: Tensors, first: Tensors, second: Tensors | None = None, *, copies: Tensors | None
) -> dict[str, Tensors]:
    roles = {"params": params, "grads": grads, "first": first}
    if second is not None:
        roles["second"] = second
    if copies is not None:
        roles["copies"] = copies
    return roles


def _run(kernel: str, roles: dict[str, Tensors], *arguments: Any) -> None:
    for group in grouped(roles):
        functions = library.load().functions
        if functions is None:
            refuse_misfits(group)
            getattr(plain, kernel)(group, *arguments)
            continue
        operands = Operands(group)
        _check(getattr(functions, f"accel_{kernel}")(operands.structure, *arguments))
        operands.write_back()


def _check(status: int) -> None:
    if status == binding.OVERLAP:
        refuse("two written tensors that share memory", "memory of its own for each")
    if status == binding.NO_MEMORY:
        raise MemoryError("a host kernel found no memory for its sums")
    # Types were checked before: another status is a fault of this package.
    assert status == binding.OK, status


def _refuse_step(step: int) -> None:
    if step < 1:
        raise ValueError(f"steps of Adam count from 1, this is step {step}")
