# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors as the C structure that a kernel takes, checked."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import torch

from accel_host import aliasing, binding
from accel_host.errors import InvalidTensors

Tensors = Sequence[torch.Tensor]
Roles = dict[str, Tensors]
TYPES = {torch.float32: binding.F32, torch.bfloat16: binding.BF16, torch.float16: binding.F16}
#: Roles in the C structure's order; all but the gradients are written.
ROLES = ("params", "grads", "first", "second", "copies")
_FIELDS = dict(zip(ROLES, ("param_type", "grad_type", "state_type", "state_type", "copy_type"), strict=True))


class Operands:
    """One call's tensors, of one type a role, as `grouped` gives them; copies of those that lie in another order.

    roles: lists of equal length by name of `ROLES`; missing where the kernel has no use for them. Raises
    `InvalidTensors` for sizes that differ, tensors without memory, and shared memory that the library does not see.
    """

    def __init__(self, roles: Roles) -> None:
        self._kept: list[object] = []
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
        self._structure = binding.TensorLists(tensors=len(sizes), threads=torch.get_num_threads())
        self._structure.sizes = self._array("q", sizes)
        for role, tensors in roles.items():
            if [tensor.numel() for tensor in tensors] != sizes:
                _refuse_sizes(role, tensors, sizes)
        if not all(tensor.is_contiguous() for tensors in roles.values() for tensor in tensors):
            refuse_shared(roles)
            roles = self._in_one_order(roles)
        for role, tensors in roles.items():
            addresses = [tensor.data_ptr() for tensor in tensors]
            if 0 in addresses:
                refuse_without_memory(role, tensors)
            setattr(self._structure, role, self._array("Q", addresses))
            if tensors:
                setattr(self._structure, _FIELDS[role], TYPES[tensors[0].dtype])

    def given_to(self, function: Callable[..., int], *arguments: object) -> int:
        """The function's status. The structure holds mere addresses: of arrays that live as long as this object."""
        return function(self._structure, *arguments)

    def write_back(self) -> None:
        """Carry results from contiguous copies to the tensors they stand for."""
        with torch.no_grad():
            for original, copy in self._copied:
                original.copy_(copy)

    def _in_one_order(self, roles: Roles) -> Roles:
        """The same where a parameter's tensors lie alike and without gaps, else contiguous copies of them."""
        rows = list(zip(*roles.values(), strict=True))
        for place, row in enumerate(rows):
            if len({(tensor.shape, tensor.stride()) for tensor in row}) > 1 or not aliasing.dense(row[0]):
                rows[place] = tuple(self._contiguous(*pair) for pair in zip(roles, row, strict=True))
        return dict(zip(roles, map(list, zip(*rows, strict=True)), strict=True))

    def _contiguous(self, role: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_contiguous():
            return tensor
        copy = tensor.detach().contiguous()
        self._kept.append(copy)
        if role != "grads":
            self._copied.append((tensor, copy))
        return copy

    def _array(self, kind: str, values: Sequence[int]) -> int:
        """Address of a C array; one of ctypes takes four times as long to fill."""
        made = array(kind, values)
        self._kept.append(made)
        return made.buffer_info()[0]


def grouped(roles: Roles) -> Iterator[Roles]:
    """The lists cut into groups of equal types; raises `InvalidTensors` for what no kernel takes."""
    lengths = {len(tensors) for tensors in roles.values()}
    if len(lengths) != 1:
        found = ", ".join(f"{len(tensors)} {role}" for role, tensors in roles.items())
        refuse(found, "lists of equal length")
    if lengths == {0}:
        return
    kinds = {}
    for role, tensors in roles.items():
        kinds[role] = {tensor.dtype for tensor in tensors}
        if not (
            kinds[role] <= TYPES.keys()
            and all(tensor.is_cpu and tensor.layout is torch.strided for tensor in tensors)
            and not (role == "grads" and any(map(torch.Tensor.is_neg, tensors)))
        ):
            _refuse_tensors(role, tensors)
    if any(len(kind) > 1 for kind in kinds.values()):
        yield from _by_type(roles)
    elif "second" in roles and kinds["first"] != kinds["second"]:
        refuse("two states of different types", "one type for both states of a parameter")
    else:
        yield roles


def refuse_misfits(roles: Roles) -> None:
    """What `Operands` and the library refuse, for the way without them."""
    sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
    for role, tensors in roles.items():
        _refuse_sizes(role, tensors, sizes)
        refuse_without_memory(role, tensors)


def refuse_shared(roles: Roles) -> None:
    """Raise where a written tensor shares memory with any other."""
    if aliasing.shared(roles):
        refuse(
            "a written tensor that shares memory with another or with itself", "memory of its own for each"
        )


def refuse_without_memory(role: str, tensors: Tensors) -> None:
    """Raise for a tensor that has elements but no address, as a DTensor, a fake one, or one with freed storage."""
    for tensor in tensors:
        if tensor.numel() and not tensor.data_ptr():
            refuse(
                f"{role} of type {type(tensor).__name__} without memory of its own",
                "plain tensors in host memory",
            )


def _by_type(roles: Roles) -> Iterator[Roles]:
    places: dict[tuple[torch.dtype, ...], list[int]] = {}
    for place, row in enumerate(zip(*roles.values(), strict=True)):
        places.setdefault(tuple(tensor.dtype for tensor in row), []).append(place)
    for alike in places.values():
        yield from grouped({role: [tensors[place] for place in alike] for role, tensors in roles.items()})


def _refuse_tensors(role: str, tensors: Tensors) -> None:
    for tensor in tensors:
        negated = ", negated when read" if tensor.is_neg() else ""
        if tensor.dtype not in TYPES or not tensor.is_cpu or tensor.layout is not torch.strided or negated:
            refuse(
                f"{role} of {tensor.dtype} on {tensor.device} ({tensor.layout}{negated})",
                "dense tensors of float32, bfloat16 or float16 in host memory",
            )


def _refuse_sizes(role: str, tensors: Tensors, sizes: list[int]) -> None:
    for tensor, size in zip(tensors, sizes, strict=True):
        if tensor.numel() != size:
            refuse(f"{role} of {tensor.numel()} elements beside a parameter of {size}", "equal sizes")


def refuse(found: str, expected: str) -> NoReturn:
    """Raise InvalidTensors."""
    raise InvalidTensors(
        what="a host kernel can not work on these tensors",
        found=found,
        expected=expected,
        do="look where the optimizer's parameters, gradients and states are made",
    )
