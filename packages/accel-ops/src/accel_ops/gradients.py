# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One gradient in host memory on its way to the optimizer, in one pass over memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch

from accel_ops import aliasing, binding, library
from accel_ops.kernels import raise_for_status, sum_of_squares
from accel_ops.operands import TYPES, check_has_memory, raise_invalid


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

    Raises `InvalidTensors` for any other, and for shared memory, before anything is written.
    """
    tensors = {"grad": grad, "accumulated": accumulated, "destination": destination}
    given = {role: tensor for role, tensor in tensors.items() if tensor is not None}
    _check(given)
    functions = library.load().functions
    if functions is None:
        return _in_torch(grad, destination, accumulated, add)
    gradient = binding.Gradient(
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
    raise_for_status(functions.accel_copy_gradient(gradient, result))
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
