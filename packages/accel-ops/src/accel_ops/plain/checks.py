# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tensors that an op cannot use are errors, as DeepSpeed's kernels read out of bounds or misread them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accel_core.errors import InvalidOpArgument

Shape = Sequence[int]


def shape(what: str, name: str, tensor: torch.Tensor, *allowed: Shape) -> None:
    """Raise InvalidOpArgument unless the tensor has one of these shapes."""
    if tuple(tensor.shape) not in [tuple(each) for each in allowed]:
        wanted = " or ".join(str(tuple(each)) for each in allowed)
        raise invalid(what, f"{name} of shape {tuple(tensor.shape)}", f"shape {wanted}")


def dimensions(what: str, name: str, tensor: torch.Tensor, *allowed: int) -> None:
    """Raise InvalidOpArgument unless the tensor has as many dimensions."""
    if tensor.dim() not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise invalid(what, f"{name} of shape {tuple(tensor.shape)}", f"{wanted} dimensions")


def same_dtype(what: str, **tensors: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless the first tensor has a float type, and the others the same."""
    (first_name, first), *others = tensors.items()
    floating(what, **{first_name: first})
    for name, other in others:
        if other.dtype != first.dtype:
            raise invalid(what, f"{name} of {other.dtype}", f"{first.dtype}")


def floating(what: str, **tensors: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless each tensor has a float type."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise invalid(what, f"{name} of {tensor.dtype}", "a float type")


def indices(what: str, name: str, tensor: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless the tensor is of whole numbers."""
    if tensor.dtype not in (torch.int32, torch.int64):
        raise invalid(what, f"{name} of {tensor.dtype}", "torch.int32")


def invalid(what: str, found: str, expected: str) -> InvalidOpArgument:
    """Return the error of a function that cannot use an argument."""
    return InvalidOpArgument(
        what=f"{what} cannot use these arguments",
        found=found,
        expected=expected,
        do="pass tensors as DeepSpeed's Python functions for this op do",
    )
