# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Arguments that the quantizer cannot use are errors: DeepSpeed's kernels misread them, or read out of bounds."""

from __future__ import annotations

import math

import torch

from accel_core.errors import InvalidOpArgument


def bits(what: str, number: int) -> None:
    """Raise InvalidOpArgument unless the number of bits is 8 or 4."""
    if number not in (4, 8):
        raise _invalid(what, f"num_bits = {number}", "8 or 4")


def width(what: str, numel: int, groups: int) -> int:
    """Return the size of a group. Raises InvalidOpArgument if the groups do not divide the elements."""
    divides(what, "the number of elements", numel, "groups", groups)
    return numel // groups


def divides(what: str, name: str, number: int, by: str, *factors: int) -> None:
    """Raise InvalidOpArgument unless the product of the factors divides the number."""
    divisor = math.prod(factors)
    if min(factors) < 1 or number % divisor:
        told = " * ".join(map(str, factors))
        raise _invalid(what, f"{name} = {number}, {by} = {told}", f"a multiple of {by}")


def last_dimension(what: str, tensor: torch.Tensor, divisor: int) -> None:
    """Raise InvalidOpArgument unless the tensor has a last dimension, which is a multiple."""
    if not tensor.dim() or divisor < 1 or tensor.shape[-1] % divisor:
        raise _invalid(
            what, f"shape {tuple(tensor.shape)}", f"a last dimension that is a multiple of {divisor}"
        )


def parameters(what: str, tensor: torch.Tensor, count: int) -> None:
    """Raise InvalidOpArgument unless there are as many parameters as the groups need."""
    same_size(what, "the parameters' size", tensor, count)


def same_size(what: str, name: str, tensor: torch.Tensor, count: int) -> None:
    """Raise InvalidOpArgument unless the tensor has as many elements."""
    if tensor.numel() != count:
        raise _invalid(what, f"{name} has {tensor.numel()} elements", f"{count}")


def floating(what: str, name: str, tensor: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless the tensor has a float type."""
    if not tensor.is_floating_point():
        raise _invalid(what, f"{name} of {tensor.dtype}", "a float type")


def _invalid(what: str, found: str, expected: str) -> InvalidOpArgument:
    return InvalidOpArgument(
        what=f"the quantizer's {what} cannot use these arguments",
        found=found,
        expected=expected,
        do="pass what fits, or turn zero_quantized_weights and zero_quantized_gradients off",
    )
