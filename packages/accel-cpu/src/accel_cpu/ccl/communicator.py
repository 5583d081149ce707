# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A communicator of oneCCL, and its collectives on tensors. Each is done when its call returns."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import in_short
from accel_cpu.ccl import library
from accel_cpu.errors import OneCCLFailed
from accel_cpu.exchange import Exchange, shown
from accel_cpu.process_group import contiguous, store

#: onecclDataType_t.
DTYPES = {
    torch.int8: 0, torch.uint8: 1, torch.int32: 2, torch.int64: 4,
    torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9,
}  # fmt: skip
#: onecclRedOp_t; an average is a sum that is divided here.
OPERATIONS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3, "AVG": 0}
_BYTES = 1  # onecclUint8: for what only moves data


def exchange_id(store: Any, rank: int, ranks: int) -> library.UniqueId:
    """Return the identifier that rank 0 makes. Raises OneCCLFailed on all ranks if one has no oneCCL; StoreTampered."""
    exchange, mine, failure = Exchange(store, rank, ranks, "loaded", "id"), b"", ""
    try:
        loaded = library.load()
        if rank == 0:
            made = library.UniqueId()
            library.check(loaded, loaded.onecclGetUniqueId(ctypes.byref(made)), "oneCCL made no identifier")
            mine = bytes(made)
    except OneCCLFailed as error:
        failure = in_short(error) or type(error).__name__
    failures = exchange.all_gather(failure)
    if any(failures):
        raise OneCCLFailed(
            "the backend ccl cannot be used: "
            f"{'; '.join((f'rank {peer}: {shown(text)}' for peer, text in enumerate(failures) if text))}",
            do="pip install 'oneccl>=2022.1' in the environment of every rank, or use the backend gloo or shm",
        )
    try:
        identifier = bytes.fromhex(exchange.all_gather(mine.hex())[0])
        if len(identifier) != library.UNIQUE_ID_BYTES:
            raise ValueError(f"{len(identifier)} bytes")
    except ValueError as error:
        raise OneCCLFailed(
            f"the backend ccl cannot be used: an identifier of rank 0 that is none: {shown(str(error))}",
            do="use one release of accel-cpu on all ranks, and find out who else reaches the store's port",
        ) from error
    return library.UniqueId.from_buffer_copy(identifier)


class Communicator:
    """The ranks of a group, connected by oneCCL. Made by all of them at the same time.

    store: torch's, with a prefix that no other communicator has.
    """

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._ranks = ranks
        self._handle = ctypes.c_void_p()
        with library.settings():
            identifier = exchange_id(store, rank, ranks)
            self._library = library.load()
            result = self._library.onecclCommInitRank(ctypes.byref(self._handle), ranks, identifier, rank)
        library.check(self._library, result, "oneCCL did not connect the ranks")

    def all_reduce(self, tensor: Tensor, operation: str) -> None:
        flat = contiguous(tensor)
        address, number = flat.data_ptr(), OPERATIONS[operation]
        self._call(
            "onecclAllReduce", flat.numel(), address, address, flat.numel(), DTYPES[flat.dtype], number
        )
        self._divide(flat, operation)
        store(flat, tensor)

    def reduce(self, tensor: Tensor, operation: str, root: int, *, receives: bool) -> None:
        """Reduce to rank `root`; the tensors of the others keep their values. receives: whether this is the root."""
        flat = contiguous(tensor)
        reduced = torch.empty_like(flat)
        numbers = (DTYPES[flat.dtype], OPERATIONS[operation], root)
        self._call("onecclReduce", flat.numel(), flat.data_ptr(), reduced.data_ptr(), flat.numel(), *numbers)
        if receives:
            self._divide(reduced, operation)
            store(reduced, tensor)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        flat = contiguous(tensor)
        address = flat.data_ptr()
        self._call("onecclBroadcast", flat.nbytes, address, address, flat.nbytes, _BYTES, root)
        store(flat, tensor)

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        flat, gathered = contiguous(tensor), contiguous(output)
        addresses = (flat.data_ptr(), gathered.data_ptr())
        self._call("onecclAllGather", flat.nbytes, *addresses, flat.nbytes, _BYTES)
        store(gathered, output)

    def reduce_scatter(self, output: Tensor, tensor: Tensor, operation: str) -> None:
        flat, reduced = contiguous(tensor), contiguous(output)
        addresses, count = (flat.data_ptr(), reduced.data_ptr()), reduced.numel()
        self._call("onecclReduceScatter", count, *addresses, count, DTYPES[flat.dtype], OPERATIONS[operation])
        self._divide(reduced, operation)
        store(reduced, output)

    def all_to_all(self, output: Tensor, tensor: Tensor, sends: list[int], receives: list[int]) -> None:
        """Send and receive parts, which have equal sizes."""
        flat, received = contiguous(tensor), contiguous(output)
        size = flat.nbytes // self._ranks
        self._call("onecclAllToAll", size, flat.data_ptr(), received.data_ptr(), size, _BYTES)
        store(received, output)

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1, dtype=torch.int32), "SUM")

    def close(self) -> None:
        """Give the communicator back; called by all ranks. Idempotent."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.onecclCommDestroy(handle)

    def _divide(self, tensor: Tensor, operation: str) -> None:
        if operation == "AVG":
            tensor.detach().div_(self._ranks)

    def _call(self, name: str, size: int, *arguments: int) -> None:
        if not self._handle:
            raise OneCCLFailed(
                f"{name} cannot be called: a process group that was shut down",
                do="call init_process_group again",
            )
        if size > 0:
            result = getattr(self._library, name)(*arguments, self._handle, None)
            library.check(self._library, result, f"{name} failed")
