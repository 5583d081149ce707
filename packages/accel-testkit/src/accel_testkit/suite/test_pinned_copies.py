# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned copies: of any tensor, with memory of their own, which is pinned as long as it is held and no longer."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("pinned_memory")]

_TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "bfloat16": lambda: torch.arange(7.0).to(torch.bfloat16),
    "float16": lambda: torch.arange(7.0).half(),
    "float64": lambda: torch.arange(7.0).double() / 3,
    "int64": lambda: torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 0]),
    "bool": lambda: torch.tensor([True, False, True]),
    "uint8": lambda: torch.arange(7, dtype=torch.uint8),
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "every other": lambda: torch.arange(12.0)[1::2],
    "a column": lambda: torch.arange(12.0).reshape(3, 4)[:, 1],
    "scalar": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0),
    "no rows": lambda: torch.empty(0, 3, dtype=torch.float16),
}


@pytest.mark.parametrize("kind", _TENSORS)
def test_any_tensor_is_copied(accelerator: DeepSpeedAccelerator, kind: str) -> None:
    """`pin_memory` keeps values, shape and type of tensors of any type, size and stride."""
    wrong = []
    for form in (1, 0):
        pinned = accelerator.pin_memory(_TENSORS[kind](), align_bytes=form)
        same = pinned.dtype == _TENSORS[kind]().dtype and torch.equal(pinned, _TENSORS[kind]())
        if not same or pinned.device.type != "cpu":
            wrong.append(f"align_bytes={form}: {pinned!r}")
        elif pinned.numel() and not accelerator.is_pinned(pinned):
            wrong.append(f"align_bytes={form}: not pinned")
    expect(
        not wrong,
        f"pin_memory() makes a wrong copy of a tensor ({kind})",
        found="; ".join(wrong),
        expected=repr(_TENSORS[kind]()),
        do="copy element by element, of any stride, into memory of the same type",
    )


def test_copy_has_memory_of_its_own(accelerator: DeepSpeedAccelerator) -> None:
    """A pinned copy shares no memory with its source, nor with another copy of it."""
    source = torch.zeros(1024)
    copies = [accelerator.pin_memory(source) for _ in range(2)]
    copies += [accelerator.pin_memory(source, align_bytes=0) for _ in range(2)]
    copies += [accelerator.pin_empty_like(source) for _ in range(2)]
    for number, tensor in enumerate((source, *copies)):
        tensor.fill_(number)
    found = [tensor[-1].item() for tensor in (source, *copies)]
    expect(
        found == list(range(len(found))),
        "pinned copies share memory",
        found=f"after each was filled with its number, they hold {found}",
        expected="memory of its own for each: a swapped-out tensor would be overwritten",
        do="lock new memory for each call",
    )


@pytest.mark.parametrize("form", ["copy", "aligned", "empty"])
def test_views_of_pinned_memory_are_pinned(accelerator: DeepSpeedAccelerator, form: str) -> None:
    """A part of a pinned tensor is pinned, wherever it begins: DeepSpeed cuts buffers into parts."""
    host = torch.zeros(4096)
    pinned = {
        "copy": lambda: accelerator.pin_memory(host),
        "aligned": lambda: accelerator.pin_memory(host, align_bytes=0),
        "empty": lambda: accelerator.pin_empty(4096, dtype=torch.float32),
    }[form]()
    views = {
        "all of it": pinned.view(64, 64),
        "the end": pinned[-1:],
        "the middle": pinned.narrow(0, 100, 7),
        "every other": pinned[1::2],
        "its bytes": pinned.view(torch.uint8)[5:],
    }
    ordinary = [name for name, view in views.items() if accelerator.is_pinned(view) is not True]
    expect(
        not ordinary,
        "views of pinned memory are not pinned",
        found=", ".join(ordinary),
        expected="True for each part of pinned memory",
        do="compare with the whole range that is locked, not with its first address",
    )


def test_whole_pages_begin_at_a_page(accelerator: DeepSpeedAccelerator) -> None:
    """`pin_memory(tensor, align_bytes=0)` begins at a page, whatever the tensor's size."""
    pinned = [accelerator.pin_memory(torch.ones(n), align_bytes=0) for n in (1, 7, 1000, 5000)]
    offsets = [tensor.data_ptr() % mmap.PAGESIZE for tensor in pinned]
    expect(
        offsets == [0] * len(pinned),
        "pin_memory(align_bytes=0) is not aligned to pages",
        found=f"{offsets} bytes behind the beginning of a page",
        expected=f"addresses that {mmap.PAGESIZE} divides: O_DIRECT file access needs it",
        do="override pin_aligned(): lock more than is needed, and begin at a page",
    )


@pytest.mark.parametrize("size", [16, 1024, 1 << 16])
def test_freed_memory_is_not_pinned(accelerator: DeepSpeedAccelerator, size: int) -> None:
    """Once a pinned tensor is gone its address says nothing: ordinary memory that is there later is not pinned."""
    pinned = [accelerator.pin_memory(torch.zeros(size)) for _ in range(16)]
    del pinned
    ordinary = [torch.zeros(size) for _ in range(64)]
    found = sum(accelerator.is_pinned(tensor) for tensor in ordinary)
    expect(
        found == 0,
        "is_pinned() remembers addresses of memory that is freed",
        found=f"{found} of {len(ordinary)} ordinary tensors count as pinned, after pinned ones were freed",
        expected="none: an asynchronous copy from them would be wrong",
        do="ask the runtime, or forget the address when the memory is freed",
    )


def test_answer_follows_the_data_of_a_tensor(accelerator: DeepSpeedAccelerator) -> None:
    """`is_pinned` follows `tensor.data = other`: the same tensor, or parameter, is pinned while its memory is."""
    pinned, again = (accelerator.pin_memory(torch.ones(64)) for _ in range(2))
    ordinary = torch.ones(64)
    wrong = []
    for tensor in (
        torch.zeros(64),
        torch.nn.Parameter(torch.zeros(64)),
        accelerator.pin_memory(torch.zeros(64)),
    ):
        for name, data in [
            ("pinned", pinned),
            ("ordinary", ordinary),
            ("pinned", again),
            ("ordinary", ordinary),
        ]:
            tensor.data = data
            found = accelerator.is_pinned(tensor)
            wrong += [f"{found} with {name} memory"] * (found is not (name == "pinned"))
    expect(
        not wrong,
        "is_pinned() answers for the memory that a tensor had before",
        found="; ".join(wrong),
        expected="True with pinned memory, False with ordinary memory",
        do="ask about tensor.data_ptr() at each call, and keep nothing by tensor",
    )


def test_neighbours_of_pinned_memory_are_not_pinned(accelerator: DeepSpeedAccelerator) -> None:
    """Ordinary memory is not pinned while there is pinned memory, and the source of a copy is not either."""
    sources = [torch.zeros(size) for size in (3, 1024, 1 << 16)]
    pinned = [accelerator.pin_memory(source) for source in sources]
    found = [accelerator.is_pinned(source) for source in sources]
    expect(
        found == [False] * 3 and all(accelerator.is_pinned(tensor) for tensor in pinned),
        "is_pinned() takes the source of a pinned copy for pinned",
        found=repr(found),
        expected="False for each source, True for each copy",
        do="ask the runtime about the tensor's own memory",
    )
