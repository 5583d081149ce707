# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of random calls, any part of which every rank can make, and what a reduction of them has to give.

A large call is checked part by part: whole tensors of all ranks, in float64, would take gigabytes on each of them.
"""

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
#: A prime: what moves by a power of two, or by a slot, cannot look as if it were in its place.
_LENGTH = 262_147
PART = 1 << 17


@functools.cache
def _table(dtype: torch.dtype) -> Tensor:
    """Return _LENGTH random values, twice in a row."""
    generator = torch.Generator().manual_seed(1)
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        low, high = max(info.min, -(2**40)), min(info.max, 2**40)
        once = torch.randint(low, high, (_LENGTH,), generator=generator, dtype=torch.int64)
    else:
        once = torch.randn(_LENGTH, generator=generator, dtype=torch.float64)
        once = once > 0 if dtype is torch.bool else once
    return once.to(dtype).repeat(2)


def part(start: int, dtype: torch.dtype, begin: int, count: int) -> Tensor:
    """Return `count` values of the sequence `start` from `begin` on; at most PART."""
    place = (begin + start) % _LENGTH
    return _table(dtype)[place : place + count]


def parts(size: int) -> Iterator[tuple[int, int]]:
    """Yield begin and length of the parts of `size` elements."""
    for begin in range(0, size, PART):
        yield begin, min(PART, size - begin)


def fill(tensor: Tensor, start: int, begin: int = 0) -> Tensor:
    """Fill a tensor of one dimension with the sequence `start` from `begin` on, and return it."""
    for offset, count in parts(tensor.numel()):
        tensor[offset : offset + count] = part(start, tensor.dtype, begin + offset, count)
    return tensor


def check_moved(found: Tensor, start: int, begin: int) -> None:
    """Check that `found` has the sequence `start` from `begin` on."""
    for offset, count in parts(found.numel()):
        wanted = part(start, found.dtype, begin + offset, count)
        assert torch.equal(found[offset : offset + count], wanted), (found.dtype, found.numel(), offset)


def check_reduced(found: Tensor, starts: list[int], begin: int, operation: str) -> None:
    """Check that `found` is the reduction of the sequences from `begin` on."""
    for offset, count in parts(found.numel()):
        given = [part(start, found.dtype, begin + offset, count) for start in starts]
        _check(found[offset : offset + count], given, operation)


def _check(found: Tensor, given: list[Tensor], operation: str) -> None:
    expected = _expected(given, operation)
    if found.dtype in INTEGERS:
        assert torch.equal(found, expected), (operation, found.dtype, found.numel())
        return
    overflow = expected.abs() >= torch.finfo(found.dtype).max
    difference = (found.double() - expected).abs()
    assert bool((overflow | (difference <= _bound(given, operation, expected))).all()), (
        operation, found.dtype, found.numel(), difference.max(),
    )  # fmt: skip


def _expected(given: list[Tensor], operation: str) -> Tensor:
    """Reduce in float64, or in the integer type itself."""
    stacked = torch.stack(given) if given[0].dtype in INTEGERS else torch.stack(given).double()
    if operation == "PRODUCT":
        return stacked.prod(0, dtype=stacked.dtype)
    if operation in ("MIN", "MAX"):
        return stacked.amin(0) if operation == "MIN" else stacked.amax(0)
    total = stacked.sum(0, dtype=stacked.dtype)
    return total / len(given) if operation == "AVG" else total


def _bound(given: list[Tensor], operation: str, expected: Tensor) -> Tensor:
    """Return the largest allowed difference: (n-1) eps sum |x|, and for half types one rounding more."""
    dtype, ranks = given[0].dtype, len(given)
    if operation in ("MIN", "MAX"):
        return torch.zeros_like(expected)
    scale = expected.abs() if operation == "PRODUCT" else torch.stack(given).double().abs().sum(0)
    if operation == "AVG":
        scale = scale / ranks
    half = dtype in (torch.bfloat16, torch.float16)
    # The spacing of numbers is constant below the normal ones.
    bound = (ranks - 1) * torch.finfo(torch.float32 if half else dtype).eps * scale
    bound += torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    return bound + expected.abs() * torch.finfo(dtype).eps / 2 if half else bound
