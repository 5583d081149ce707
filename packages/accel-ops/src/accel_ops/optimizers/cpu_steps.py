# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps, in place, over lists of tensors in host memory, and one gradient on its way to the optimizer.

Parameters, gradients and states may each be float32, bfloat16 or float16; the arithmetic is float32. `copies` receive
the updated parameters, converted to their own dtype, in the same pass over memory. `grad_factor` multiplies the
gradients first: the inverse of a loss scale, a clip coefficient (from `sum_of_squares`), or their product. Without the
library, plain torch computes the same.

Every function raises `InvalidOpArgument` for other dtypes or devices, sizes that differ, shared memory, and options
that are not numbers, before anything is written. None increments the version counters of autograd.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from accel_ops.host import aliasing, c_interface, library
from accel_ops.optimizers import torch_steps
from accel_ops.optimizers.ctypes_tensors import (
    TYPES,
    Roles,
    Tensors,
    check_aliasing,
    check_each,
    check_has_memory,
    group_by_dtype,
    operands_of_any,
    operands_of_plain,
    raise_invalid,
    real,
    step_number,
    write_back,
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
    """Take a step of Adam, or of AdamW if `decoupled`. Source: arXiv:1412.6980, arXiv:1711.05101.

    step: the number of this step, from 1.
    rollback: undo this step instead, up to rounding: the values are those after it, the gradients its own.

    Raises InvalidOpArgument (a ValueError) for a step below 1 and options that are not numbers. Raises ValueError for a
    rollback of a step that cannot be undone.
    """
    step, lr, beta1, beta2 = step_number(step), real("lr", lr), real("beta1", beta1), real("beta2", beta2)
    eps, weight_decay = real("eps", eps), real("weight_decay", weight_decay)
    if rollback and not (beta1 and beta2 and (not decoupled or lr * weight_decay != 1)):
        raise ValueError(
            f"a step with betas {beta1}, {beta2} and lr * weight_decay {lr * weight_decay} cannot be undone"
        )
    grad_factor = real("grad_factor", grad_factor)
    options = c_interface.AdamOptions(
        lr, beta1, beta2, eps, weight_decay, grad_factor, step, decoupled, bias_correction
    )
    roles = _roles(params, grads, exp_avgs, exp_avg_sqs, copies=copies)
    _run("adam_rollback" if rollback else "adam", roles, options)


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
    """Take a step of Adagrad. Source: Duchi, Hazan and Singer, JMLR 12 (2011)."""
    options = _reals(lr=lr, eps=eps, weight_decay=weight_decay, grad_factor=grad_factor)
    _run("adagrad", _roles(params, grads, sums, copies=copies), *options)


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
    at_zero: float = 0.0,
    copies: Tensors | None = None,
) -> None:
    """Take a step of Lion. Source: arXiv:2302.06675.

    at_zero: the sign of 0. It is 0 in the source, and -1 in DeepSpeed's kernel for CUDA.
    """
    options = _reals(
        lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, grad_factor=grad_factor, at_zero=at_zero
    )
    _run("lion", _roles(params, grads, exp_avgs, copies=copies), *options)


def sum_of_squares(tensors: Tensors) -> float:
    """Return the sum over all elements, in float64; infinite or NaN where an element is.

    The result has the same bits for any number of threads.
    """
    result = ctypes.c_double()
    total = 0.0
    for roles in group_by_dtype({"grads": tensors}):
        _run("sum_of_squares", roles, result)
        total += result.value
    return total


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
    """Check all tensors, then call the kernel for each group of one dtype."""
    loaded = library.load()
    functions = loaded.functions
    function: Any = getattr(functions, f"accel_{kernel}", None)
    if plain := operands_of_plain(loaded.module.pack, roles):
        return _raise_for_status(plain.call(function, *arguments))
    groups = list(group_by_dtype(roles))
    if functions is None or len(groups) > 1:
        check_aliasing(roles)
    if functions is None:
        for group in groups:
            check_each(group)
        with torch.no_grad():
            for group in groups:
                getattr(torch_steps, kernel)(group, *arguments)
        return None
    for group, (operands, computed) in [(group, operands_of_any(group)) for group in groups]:
        _raise_for_status(operands.call(function, *arguments))
        if computed is not group:
            write_back(group, computed)
    return None


def _raise_for_status(status: int) -> None:
    """Raise the error that a function of the library has returned."""
    if status == c_interface.OVERLAP:
        raise_invalid("a written tensor that shares memory with another", "separate memory for each")
    if status == c_interface.NO_MEMORY:
        raise MemoryError("a host kernel has no memory for its working data")
    if status != c_interface.OK:
        raise RuntimeError(
            f"a host kernel returned status {status}, although its arguments were checked: a bug in accel-ops"
        )


def _reals(**options: Any) -> list[float]:
    return [real(name, value) for name, value in options.items()]


def copy_gradient(
    grad: torch.Tensor,
    destination: torch.Tensor | None = None,
    *,
    accumulated: torch.Tensor | None = None,
    add: bool = False,
) -> float:
    """Accumulate, convert and copy a gradient; return the sum of its squares, in float64.

    destination: receives the gradient, converted to its own dtype.
    accumulated: the gradients so far, of the gradient's dtype. With `add` the gradient is added to it, rounded as
        `Tensor.add_` does, and the sum is what the destination receives; otherwise the gradient replaces it.
    The result is infinite or NaN where an element is, 0 without a destination. It has the same bits for any number of
    threads. All tensors are contiguous, of float32, bfloat16 or float16, of equal size, in host memory.

    Raises `InvalidOpArgument` for any other, and for shared memory, before anything is written.
    """
    tensors = {"grad": grad, "accumulated": accumulated, "destination": destination}
    given = {role: tensor for role, tensor in tensors.items() if tensor is not None}
    _check(given)
    functions = library.load().functions
    if functions is None:
        return _in_torch(grad, destination, accumulated, add)
    gradient = c_interface.Gradient(
        grad.data_ptr(),
        accumulated.data_ptr() if accumulated is not None else None,
        destination.data_ptr() if destination is not None else None,
        grad.numel(),
        TYPES[grad.dtype],
        TYPES[destination.dtype if destination is not None else grad.dtype],
        add,
        torch.get_num_threads(),
    )
    result = ctypes.c_double(0.0)
    _raise_for_status(functions.accel_copy_gradient(gradient, result))
    return result.value


def _in_torch(
    grad: torch.Tensor, destination: torch.Tensor | None, accumulated: torch.Tensor | None, add: bool
) -> float:
    with torch.no_grad():
        if accumulated is not None:
            accumulated = accumulated.detach().view(-1)
            grad = accumulated.add_(grad.view(-1)) if add else accumulated.copy_(grad.view(-1))
        if destination is None:
            return 0.0
        destination.detach().view(-1).copy_(grad.view(-1))
        return sum_of_squares([grad])


def _check(given: dict[str, torch.Tensor]) -> None:
    grad = given["grad"]
    for role, tensor in given.items():
        if (
            tensor.dtype not in TYPES
            or not tensor.is_cpu
            or tensor.layout is not torch.strided
            or not tensor.is_contiguous()
            or tensor.is_neg()
        ):
            raise_invalid(
                f"{role} of {tensor.dtype} on {tensor.device} ({tensor.layout}, strides {tensor.stride()})",
                "contiguous tensors of float32, bfloat16 or float16 in host memory",
            )
        if tensor.numel() != grad.numel():
            raise_invalid(
                f"{role} of {tensor.numel()} elements for a gradient of {grad.numel()}", "equal sizes"
            )
        check_has_memory(role, [tensor])
    if "accumulated" in given and given["accumulated"].dtype is not grad.dtype:
        raise_invalid(f"accumulated of {given['accumulated'].dtype}", f"{grad.dtype}, as the gradient")
    end = 0
    for begin, until in sorted(_extents(given)):
        if begin < end:
            raise_invalid("a tensor that shares memory with another", "separate memory for each")
        end = until


def _extents(given: dict[str, torch.Tensor]) -> Iterator[tuple[int, int]]:
    return (aliasing.extent(tensor) for tensor in given.values() if tensor.numel())
