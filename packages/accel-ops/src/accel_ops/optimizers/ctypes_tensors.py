# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checks lists of tensors and options of a step, and converts them to what the C interface takes.

Options may be tensors of one element, as upstream.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.host import aliasing, c_interface

_LARGEST_STEP = 2**63 - 1


def real(name: str, value: Any) -> float:
    """Return a float; raises InvalidOpArgument for what is not a number."""
    if isinstance(value, (float, int)):
        return float(value)
    try:
        if hasattr(value, "__float__"):
            return float(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor of several elements, or without values
        raise_of_device(error, value)
    raise _invalid(name, value, "a number, or a tensor with one element")


def step_number(value: Any) -> int:
    """Return the number of a step; raises InvalidOpArgument for all but integers from 1, as upstream."""
    try:
        if not isinstance(value, float) and hasattr(value, "__int__"):
            number = int(value)
            if 1 <= number <= _LARGEST_STEP:
                return number
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise_of_device(error, value)
    raise _invalid("step", value, "an integer, or a tensor with one element: steps of Adam count from 1")


def raise_of_device(error: Exception, *values: Any) -> None:
    """Raise the error of reading these values if it may be a device's: of earlier work, and raised only once."""
    for value in values:
        if (
            isinstance(value, torch.Tensor)
            and value.numel() == 1
            and value.device.type not in ("cpu", "meta")
        ):
            raise error


def _invalid(name: str, value: Any, expected: str) -> InvalidOpArgument:
    return InvalidOpArgument(
        f"an optimizer step cannot be taken with this {name}: {name}={value!r} ({type(value).__name__}); "
        f"expected {expected}",
        do=f"correct the code that passes {name}",
    )


Tensors = Sequence[torch.Tensor]
Roles = dict[str, Tensors]
TYPES = {torch.float32: c_interface.F32, torch.bfloat16: c_interface.BF16, torch.float16: c_interface.F16}
#: Fields of the C structure, in its order. Kernels write all but the gradients.
ROLES = ("params", "grads", "first", "second", "copies")
_FIELDS = dict(zip(ROLES, ("param_type", "grad_type", "state_type", "state_type", "copy_type"), strict=True))


class Operands:
    """The tensors of one call, as a C structure. They must live as long as it does.

    roles: lists of equal length by the names of `ROLES`.
    data:  64-bit numbers: the type of each list, the sizes, the addresses of each list (`pack` in csrc/python.cpp).
    """

    def __init__(self, roles: Roles, data: bytes) -> None:
        self._data = data
        start = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
        count, lists = len(next(iter(roles.values()))), len(roles)
        self.types = dict(zip(roles, struct.unpack_from(f"{lists}q", data), strict=True))
        self._structure = c_interface.TensorLists(tensors=count, threads=torch.get_num_threads())
        self._structure.sizes = start + 8 * lists
        for index, role in enumerate(roles):
            setattr(self._structure, role, start + 8 * (lists + (1 + index) * count))
            setattr(self._structure, _FIELDS[role], self.types[role])

    def call(self, function: Callable[..., int], *arguments: object) -> int:
        """Call a function of the library; returns its status."""
        return function(self._structure, *arguments)


def operands_of_plain(pack: Callable[..., bytes | None], roles: Roles) -> Operands | None:
    """Return the operands where all are lists of plain tensors, each of one dtype; None for others.

    pack: the function of the library's module, in a tenth of the time of `operands_of_any`.
    """
    data = pack(*roles.values())
    made = None if data is None else Operands(roles, data)
    states = {made.types[role] for role in ("first", "second") if role in roles} if made else set()
    return made if len(states) < 2 else None


def operands_of_any(roles: Roles) -> tuple[Operands, Roles]:
    """Return the operands of a group of `group_by_dtype`, and the lists that they are of.

    Tensors with another memory layout are replaced by contiguous copies. Raises `InvalidOpArgument` for sizes that
    differ, tensors without memory, and shared memory that the library does not see.
    """
    check_each(roles)
    if not all(tensor.is_contiguous() for tensors in roles.values() for tensor in tensors):
        check_aliasing(roles)
        roles = _in_one_layout(roles)
    types = [TYPES[tensors[0].dtype] if tensors else 0 for tensors in roles.values()]
    sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
    addresses = [tensor.data_ptr() for tensors in roles.values() for tensor in tensors]
    return Operands(roles, array("q", [*types, *sizes, *addresses]).tobytes()), roles


def _in_one_layout(roles: Roles) -> Roles:
    """Return contiguous copies for each parameter whose tensors differ in strides or are not dense."""
    rows = list(zip(*roles.values(), strict=True))
    for index, row in enumerate(rows):
        if len({(tensor.shape, tensor.stride()) for tensor in row}) > 1 or not aliasing.is_dense(row[0]):
            rows[index] = tuple(tensor.detach().contiguous() for tensor in row)
    return dict(zip(roles, map(list, zip(*rows, strict=True)), strict=True))


def write_back(roles: Roles, computed: Roles) -> None:
    """Copy results from the contiguous copies to the original tensors."""
    with torch.no_grad():
        for role, originals in roles.items():
            for original, copy in zip(originals, computed[role], strict=True):
                if role != "grads" and copy.data_ptr() != original.data_ptr():
                    original.copy_(copy)


def group_by_dtype(roles: Roles) -> Iterator[Roles]:
    """Divide the lists into groups of one dtype a role; raises `InvalidOpArgument` for tensors that no kernel takes."""
    lengths = {len(tensors) for tensors in roles.values()}
    if len(lengths) != 1:
        found = ", ".join(f"{len(tensors)} {role}" for role, tensors in roles.items())
        raise_invalid(found, "lists of equal length")
    if lengths == {0}:
        return
    dtypes = {}
    for role, tensors in roles.items():
        dtypes[role] = {tensor.dtype for tensor in tensors}
        if not (
            dtypes[role] <= TYPES.keys()
            and all(tensor.is_cpu and tensor.layout is torch.strided for tensor in tensors)
            # A conjugate view is complex, so no dtype of ours; its imaginary part is a negative view.
            and not any(map(torch.Tensor.is_neg, tensors))
        ):
            _raise_unsupported(role, tensors)
    if any(len(each) > 1 for each in dtypes.values()):
        yield from _by_type(roles)
    elif "second" in roles and dtypes["first"] != dtypes["second"]:
        raise_invalid("two states of different dtypes", "one dtype for both states of a parameter")
    else:
        yield roles


def check_each(roles: Roles) -> None:
    """Raise InvalidOpArgument where `Operands` would, for calls that do not use the library."""
    sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
    for role, tensors in roles.items():
        _check_sizes(role, tensors, sizes)
        check_has_memory(role, tensors)


def check_aliasing(roles: Roles) -> None:
    """Raise InvalidOpArgument where a written tensor shares memory with any other."""
    if aliasing.share_memory(roles):
        raise_invalid(
            "a written tensor that shares memory with another or with itself", "separate memory for each"
        )


def check_has_memory(role: str, tensors: Tensors) -> None:
    """Raise InvalidOpArgument for elements without an address: of a DTensor, a FakeTensor, a freed storage."""
    for tensor in tensors:
        if tensor.numel() and not tensor.data_ptr():
            raise_invalid(
                f"{role} of type {type(tensor).__name__} without memory of its own",
                "ordinary tensors in host memory",
            )


def _by_type(roles: Roles) -> Iterator[Roles]:
    groups: dict[tuple[torch.dtype, ...], list[int]] = {}
    for index, row in enumerate(zip(*roles.values(), strict=True)):
        groups.setdefault(tuple(tensor.dtype for tensor in row), []).append(index)
    for indices in groups.values():
        group: Roles = {role: [tensors[index] for index in indices] for role, tensors in roles.items()}
        yield from group_by_dtype(group)


def _raise_unsupported(role: str, tensors: Tensors) -> None:
    for tensor in tensors:
        negated = ", negative bit set" if tensor.is_neg() else ""
        if tensor.dtype not in TYPES or not tensor.is_cpu or tensor.layout is not torch.strided or negated:
            raise_invalid(
                f"{role} of {tensor.dtype} on {tensor.device} ({tensor.layout}{negated})",
                "dense tensors of float32, bfloat16 or float16 in host memory",
            )


def _check_sizes(role: str, tensors: Tensors, sizes: list[int]) -> None:
    for tensor, size in zip(tensors, sizes, strict=True):
        if tensor.numel() != size:
            raise_invalid(f"{role} of {tensor.numel()} elements for a parameter of {size}", "equal sizes")


def raise_invalid(found: str, expected: str) -> NoReturn:
    """Raise InvalidOpArgument."""
    raise InvalidOpArgument(
        f"a host kernel cannot work on these tensors: {found}; expected {expected}",
        do="correct the code that makes the optimizer's parameters, gradients and states",
    )
