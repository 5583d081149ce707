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


class Operands:
    """One call's tensors: one type a role, contiguous (copies of those that are not), none overlapping.

    roles: lists of equal length by name of `ROLES`; missing where the kernel has no use for them.
    """

    def __init__(self, roles: dict[str, Tensors], threads: int | None = None) -> None:
        self._kept: list[object] = []
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        sizes = [tensor.numel() for tensor in next(iter(roles.values()))]
        self.structure = binding.Lists(tensors=len(sizes), threads=threads or torch.get_num_threads())
        self.structure.sizes = self._array(ctypes.c_int64, sizes)
        ranges: list[tuple[int, int]] = []
        for role, tensors in roles.items():
            addresses = self._addresses(role, tensors, sizes)
            setattr(self.structure, role, self._array(ctypes.c_void_p, addresses))
            if tensors:
                self._set_type(role, tensors[0].dtype)
            if role != "grads":
                width = tensors[0].element_size() if tensors else 0
                ranges += [(at, at + size * width) for at, size in zip(addresses, sizes, strict=True) if size]
        _refuse_overlap(ranges)

    def write_back(self) -> None:
        """Carry results from contiguous copies to the tensors they stand for."""
        for original, copy in self._copied:
            original.copy_(copy)

    def _addresses(self, role: str, tensors: Tensors, sizes: list[int]) -> list[int]:
        addresses = []
        for tensor, size in zip(tensors, sizes, strict=True):
            if tensor.numel() != size:
                _refuse(f"{role} of {tensor.numel()} elements beside a parameter of {size}", "equal sizes")
            if not tensor.is_contiguous():
                original, tensor = tensor, tensor.contiguous()
                self._kept.append(tensor)
                if role != "grads":
                    self._copied.append((original, tensor))
            addresses.append(tensor.data_ptr())
        return addresses

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


def _refuse_overlap(ranges: list[tuple[int, int]]) -> None:
    end = 0
    for start, stop in sorted(ranges):
        if start < end:
            _refuse("two written tensors that share memory", "memory of its own for each")
        end = stop


def _refuse(found: str, expected: str) -> NoReturn:
    raise InvalidTensors(
        what="a host kernel can not work on these tensors",
        found=found,
        expected=expected,
        do="look where the optimizer's parameters, gradients and states are made",
    )
