# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors. A tensor whose memory does not hold its values in order goes through a copy."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from accel_cpu.shm import library
from accel_cpu.shm.memory import SharedMemory

#: Those of csrc/accel_shm.h, in its order.
REDUCIBLE = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64,
    torch.int32, torch.int64, torch.int8, torch.uint8,
)  # fmt: skip
FLOATS = REDUCIBLE[:4]
_OTHERS = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)} - {*REDUCIBLE}, key=str)
#: The number of each dtype in a request.
DTYPES = {dtype: index for index, dtype in enumerate([*REDUCIBLE, *_OTHERS])}
#: In the detail of a request: not the same as an all_reduce of that shape.
_TO_ROOT = 1 << 32


def is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor's values are in host memory, one after the other or with strides."""
    return tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_quantized


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's values."""
    return tensor.numel() * tensor.element_size()


def all_reduce(memory: SharedMemory, tensor: Tensor, operation: int) -> None:
    """Reduce in place. operation: ACCEL_SHM_SUM …"""
    flat = contiguous(tensor)
    memory.run(
        library.ALL_REDUCE, DTYPES[tensor.dtype], flat.nbytes, operation=operation, detail=_shape(tensor),
        write=flat.data_ptr(),
    )  # fmt: skip
    store(flat, tensor)


def reduce(memory: SharedMemory, tensor: Tensor, operation: int, root: int, *, receives: bool) -> None:
    """Reduce to rank `root`, in place; the others' tensors keep their values. receives: whether this is the root."""
    flat = contiguous(tensor)
    if not receives and flat is tensor:
        flat = tensor.detach().clone()  # for an all_reduce whose result is discarded
    memory.run(
        library.ALL_REDUCE, DTYPES[tensor.dtype], flat.nbytes, operation=operation, root=root,
        detail=_shape(tensor) | _TO_ROOT, write=flat.data_ptr(),
    )  # fmt: skip
    if receives:
        store(flat, tensor)


def broadcast(memory: SharedMemory, tensor: Tensor, root: int) -> None:
    """Receive the tensor of rank `root`."""
    flat = contiguous(tensor)
    memory.run(
        library.BROADCAST, DTYPES[tensor.dtype], size_of(flat), root=root, detail=_shape(tensor),
        write=flat.data_ptr(),
    )  # fmt: skip
    store(flat, tensor)


def gather(memory: SharedMemory, output: Tensor, tensor: Tensor) -> None:
    """Gather the tensors of all ranks, in rank order, in an output that has room for them."""
    flat, gathered = contiguous(tensor), contiguous(output)
    memory.run(
        library.ALL_GATHER,
        DTYPES[tensor.dtype],
        size_of(flat),
        read=flat.data_ptr(),
        write=gathered.data_ptr(),
    )
    store(gathered, output)


def reduce_scatter(memory: SharedMemory, output: Tensor, tensor: Tensor, operation: int) -> None:
    """Reduce this rank's part of the tensors, which are as many times larger than the output as there are ranks."""
    flat, reduced = contiguous(tensor), contiguous(output)
    memory.run(
        library.REDUCE_SCATTER, DTYPES[output.dtype], size_of(reduced), operation=operation,
        read=flat.data_ptr(), write=reduced.data_ptr(),
    )  # fmt: skip
    store(reduced, output)


def exchange(
    memory: SharedMemory, output: Tensor, tensor: Tensor, sends: list[int], receives: list[int]
) -> None:
    """Send and receive parts of `sends` and `receives` bytes to and from each rank."""
    flat, received = contiguous(tensor), contiguous(output)
    memory.run(
        library.ALL_TO_ALL, DTYPES[tensor.dtype], 0, read=flat.data_ptr(), write=received.data_ptr(),
        splits=(sends, receives),
    )  # fmt: skip
    store(received, output)


def compare(memory: SharedMemory, what: str, tensor: Tensor | None, root: int) -> None:
    """Wait for all ranks, and raise `CollectiveMismatch` unless they are about to do the same elsewhere."""
    dtype = -1 if tensor is None else DTYPES[tensor.dtype]
    size = 0 if tensor is None or tensor.layout != torch.strided else size_of(tensor)
    memory.run(library.BARRIER, dtype, size, root=root, detail=zlib.crc32(what.encode()))


def by_gloo(gloo: Any, name: str, outputs: Any, *arguments: Any) -> None:
    """Call a function of gloo's process group, and wait. outputs: its first argument, tensors that it writes.

    Of tensors with strides it gets copies: gloo 2.13 reads and writes some as if they had none.
    """
    copies: list[tuple[Tensor, Tensor]] = []

    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(item) for item in value]
        if not isinstance(value, Tensor) or not is_plain(value):
            return value
        copies.append((contiguous(value), value))
        return copies[-1][0]

    written = copied(outputs)
    results = list(copies)
    getattr(gloo, name)(written, *map(copied, arguments)).wait()
    for flat, tensor in results:
        store(flat, tensor)


def are_even(parts: list[Tensor], tensor: Tensor, ranks: int) -> bool:
    """Return whether there is a part for each rank, and each is like the tensor."""
    return len(parts) == ranks and all(
        part.shape == tensor.shape and part.dtype == tensor.dtype for part in parts
    )


def concatenated(parts: list[Tensor]) -> Tensor:
    """Return the values of the tensors in one flat tensor."""
    return torch.cat([contiguous(part.detach()).view(-1) for part in parts])


def splits(tensor: Tensor, rows: list[int], ranks: int) -> list[int] | None:
    """Return the bytes for each rank, given rows for each (none: equal parts); None if they do not add up."""
    if not tensor.dim():
        return None
    length = tensor.size(0)
    if not rows and length % ranks == 0:
        rows = [length // ranks] * ranks
    if len(rows) != ranks or sum(rows) != length or min(rows) < 0:
        return None
    row = size_of(tensor) // length if length else 0
    return [count * row for count in rows]


def _shape(tensor: Tensor) -> int:
    """Return a number for the shape, without dimensions of size 1."""
    sizes = [size for size in tensor.shape if size != 1]
    # The size of a single dimension is compared as bytes.
    return zlib.crc32(repr(sizes).encode()) if len(sizes) > 1 else 0


def contiguous(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if its memory does not hold its values in order."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def store(flat: Tensor, tensor: Tensor) -> None:
    """Copy the result back, if `flat` is a copy that `contiguous` made."""
    if flat is not tensor:
        tensor.detach().copy_(flat.view_as(tensor))
