# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors as the C structure that a kernel takes, checked."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

import torch

from accel_host import binding
from accel_host.errors import InvalidTensors

Tensors = Sequence[torch.Tensor]
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
#: Roles in the C structure's order; all but the gradients are written.
ROLES = ("params", "grads", "first", "second", "copies")


class Operands:
    """One call's tensors, of one type a role, as `grouped` gives them; copies of those that are not contiguous.

    roles: lists of equal length by name of `ROLES`; missing where the kernel has no use for them.
    """

    def __init__(self, roles: dict[str, Tensors], threads: int | None = None) -> None:
        self._kept: list[object] = []
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
        self.structure = binding.Lists(tensors=len(sizes), threads=threads or torch.get_num_threads())
        self.structure.sizes = self._array(ctypes.c_int64, sizes)
        for role, tensors in roles.items():
            addresses = [self._address(role, tensor) for tensor in tensors]
            setattr(self.structure, role, self._array(ctypes.c_void_p, addresses))
            if tensors:
                self._set_type(role, tensors[0].dtype)

    def write_back(self) -> None:
        """Carry results from contiguous copies to the tensors they stand for."""
        for original, copy in self._copied:
            original.copy_(copy)

    def _address(self, role: str, tensor: torch.Tensor) -> int:
        if not tensor.is_contiguous():
            original, tensor = tensor, tensor.contiguous()
            self._kept.append(tensor)
            if role != "grads":
                self._copied.append((original, tensor))
        return tensor.data_ptr()

    def _set_type(self, role: str, dtype: torch.dtype) -> None:
        field = {"params": "param", "grads": "grad", "copies": "copy"}.get(role, "state")
        setattr(self.structure, f"{field}_type", TYPES[dtype])

    def _array(self, kind: type, values: Sequence[int]) -> object:
        array = (kind * len(values))(*values)  # type: ignore[operator]
        self._kept.append(array)
        return array


def grouped(roles: dict[str, Tensors]) -> Iterator[dict[str, Tensors]]:
    """The lists cut into groups of equal types; raises `InvalidTensors` for what no kernel takes."""
    lengths = {len(tensors) for tensors in roles.values()}
    if len(lengths) != 1:
        found = ", ".join(f"{len(tensors)} {role}" for role, tensors in roles.items())
        _refuse(found, "lists of equal length")
    for role, tensors in roles.items():
        for tensor in tensors:
            if tensor.dtype not in TYPES or tensor.device.type != "cpu" or tensor.layout != torch.strided:
                _refuse(
                    f"{role} of {tensor.dtype} on {tensor.device} ({tensor.layout})",
                    "dense tensors of float32, bfloat16 or float16 in host memory",
                )
    _refuse_unequal_sizes(roles)
    _refuse_overlap(tensor for role in roles if role != "grads" for tensor in roles[role])
    if "second" in roles and any(
        one.dtype != other.dtype for one, other in zip(roles["first"], roles["second"], strict=True)
    ):
        _refuse("two states of different types", "one type for both states of a parameter")
    kinds: dict[tuple[torch.dtype, ...], list[int]] = {}
    for place, row in enumerate(zip(*roles.values(), strict=True)):
        kinds.setdefault(tuple(tensor.dtype for tensor in row), []).append(place)
    if len(kinds) == 1:
        yield roles
        return
    for places in kinds.values():
        yield {role: [tensors[place] for place in places] for role, tensors in roles.items()}


def _refuse_unequal_sizes(roles: dict[str, Tensors]) -> None:
    (_, first), *others = roles.items()
    sizes = [tensor.numel() for tensor in first]
    for role, tensors in others:
        for tensor, size in zip(tensors, sizes, strict=True):
            if tensor.numel() != size:
                _refuse(f"{role} of {tensor.numel()} elements beside a parameter of {size}", "equal sizes")


def _refuse_overlap(written: Iterable[torch.Tensor]) -> None:
    # Those that are not contiguous are worked on as copies.
    ranges = [(tensor.data_ptr(), tensor.nbytes) for tensor in written if tensor.is_contiguous()]
    end = 0
    for start, nbytes in sorted(ranges):
        if nbytes and start < end:
            _refuse("two written tensors that share memory", "memory of its own for each")
        end = start + nbytes


def _refuse(found: str, expected: str) -> NoReturn:
    raise InvalidTensors(
        what="a host kernel can not work on these tensors",
        found=found,
        expected=expected,
        do="look where the optimizer's parameters, gradients and states are made",
    )
