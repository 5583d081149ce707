# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors as the C structure that a kernel takes, checked."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import NoReturn

import torch

from accel_host import binding
from accel_host.errors import InvalidTensors

Tensors = Sequence[torch.Tensor]
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
#: Roles in the C structure's order; all but the gradients are written.
ROLES = ("params", "grads", "first", "second", "copies")
_FIELDS = dict(zip(ROLES, ("param_type", "grad_type", "state_type", "state_type", "copy_type"), strict=True))


class Operands:
    """One call's tensors, of one type a role, as `grouped` gives them; copies of those that are not contiguous.

    roles: lists of equal length by name of `ROLES`; missing where the kernel has no use for them.
    """

    def __init__(self, roles: dict[str, Tensors]) -> None:
        self._kept: list[object] = []
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
        self.structure = binding.Lists(tensors=len(sizes), threads=torch.get_num_threads())
        self.structure.sizes = self._array(ctypes.c_int64, sizes)
        for role, tensors in roles.items():
            if [tensor.numel() for tensor in tensors] != sizes:
                _refuse_sizes(role, tensors, sizes)
            if not all(tensor.is_contiguous() for tensor in tensors):
                tensors = [self._contiguous(role, tensor) for tensor in tensors]
            addresses = [tensor.data_ptr() for tensor in tensors]
            setattr(self.structure, role, self._array(ctypes.c_void_p, addresses))
            if tensors:
                setattr(self.structure, _FIELDS[role], TYPES[tensors[0].dtype])

    def write_back(self) -> None:
        """Carry results from contiguous copies to the tensors they stand for."""
        for original, copy in self._copied:
            original.copy_(copy)

    def _contiguous(self, role: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_contiguous():
            return tensor
        copy = tensor.contiguous()
        self._kept.append(copy)
        if role != "grads":
            self._copied.append((tensor, copy))
        return copy

    def _array(self, kind: type, values: Sequence[int]) -> object:
        array = (kind * len(values))(*values)  # type: ignore[operator]
        self._kept.append(array)
        return array


def grouped(roles: dict[str, Tensors]) -> Iterator[dict[str, Tensors]]:
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
        ):
            _refuse_tensors(role, tensors)
    if any(len(kind) > 1 for kind in kinds.values()):
        yield from _by_type(roles)
    elif "second" in roles and kinds["first"] != kinds["second"]:
        refuse("two states of different types", "one type for both states of a parameter")
    else:
        yield roles


def refuse_misfits(roles: dict[str, Tensors]) -> None:
    """What the library refuses by itself, for the way without it: sizes that differ, written tensors that overlap."""
    sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
    for role, tensors in roles.items():
        _refuse_sizes(role, tensors, sizes)
    written = [tensor for role in roles if role != "grads" for tensor in roles[role]]
    end = 0
    for start, nbytes in sorted((t.data_ptr(), t.nbytes) for t in written if t.is_contiguous()):
        if nbytes and start < end:
            refuse("two written tensors that share memory", "memory of its own for each")
        end = start + nbytes


def _by_type(roles: dict[str, Tensors]) -> Iterator[dict[str, Tensors]]:
    places: dict[tuple[torch.dtype, ...], list[int]] = {}
    for place, row in enumerate(zip(*roles.values(), strict=True)):
        places.setdefault(tuple(tensor.dtype for tensor in row), []).append(place)
    for alike in places.values():
        yield from grouped({role: [tensors[place] for place in alike] for role, tensors in roles.items()})


def _refuse_tensors(role: str, tensors: Tensors) -> None:
    for tensor in tensors:
        if tensor.dtype not in TYPES or not tensor.is_cpu or tensor.layout is not torch.strided:
            refuse(
                f"{role} of {tensor.dtype} on {tensor.device} ({tensor.layout})",
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
