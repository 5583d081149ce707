# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A communicator of oneCCL, and its collectives on tensors. Each is done when its call returns."""

from __future__ import annotations

import ctypes
import re
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
    identifier = exchange.all_gather(mine.hex())[0]
    if not re.fullmatch(f"[0-9a-f]{{{2 * library.UNIQUE_ID_BYTES}}}", identifier):
        raise OneCCLFailed(
            "the backend ccl cannot be used: an identifier of rank 0 that is none",
            do="use one release of accel-cpu on all ranks, and find out who else reaches the store's port",
        )
    return library.UniqueId.from_buffer_copy(bytes.fromhex(identifier))


class Communicator:
    """The ranks of a group, connected by oneCCL. Made by all of them at the same time.

    store: torch's, with a prefix that no other communicator has.
    """

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._handle = ctypes.c_void_p()
        with library.settings():
            identifier = exchange_id(store, rank, ranks)
            self._library = library.load()
            result = self._library.onecclCommInitRank(ctypes.byref(self._handle), ranks, identifier, rank)
        library.check(self._library, result, "oneCCL did not connect the ranks")

    def all_reduce(self, tensor: Tensor, operation: str) -> None:
        self._reduce("onecclAllReduce", tensor, tensor, tensor.numel(), operation)

    def reduce(self, tensor: Tensor, operation: str, root: int) -> None:
        """Reduce to rank `root`; the tensors of the others keep their values."""
        reduced = torch.empty(tensor.shape, dtype=tensor.dtype)
        self._reduce("onecclReduce", reduced, tensor, tensor.numel(), operation, root)
        if root == self._rank:
            tensor.detach().copy_(reduced)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        self._call("onecclBroadcast", tensor, tensor, tensor.nbytes, _BYTES, root)

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        self._call("onecclAllGather", output, tensor, tensor.nbytes, _BYTES)

    def reduce_scatter(self, output: Tensor, tensor: Tensor, operation: str) -> None:
        self._reduce("onecclReduceScatter", output, tensor, output.numel(), operation)

    def all_to_all(self, output: Tensor, tensor: Tensor, sends: list[int], receives: list[int]) -> None:
        """Send and receive parts, which have equal sizes."""
        self._call("onecclAllToAll", output, tensor, tensor.nbytes // self._ranks, _BYTES)

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1, dtype=torch.int32), "SUM")

    def close(self) -> None:
        """Give the communicator back; called by all ranks. Idempotent."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.onecclCommDestroy(handle)

    def _reduce(
        self, name: str, output: Tensor, tensor: Tensor, count: int, operation: str, *root: int
    ) -> None:
        self._call(name, output, tensor, count, DTYPES[tensor.dtype], OPERATIONS[operation], *root)
        if operation == "AVG":
            output.detach().div_(self._ranks)

    def _call(self, name: str, output: Tensor, tensor: Tensor, count: int, *numbers: int) -> None:
        """Call a function that reads `tensor` and writes `output`. count: of a rank's elements or bytes."""
        if not self._handle:
            raise OneCCLFailed(
                f"{name} cannot be called: a process group that was shut down",
                do="call init_process_group again",
            )
        if count > 0:
            read = contiguous(tensor)
            written = read if output is tensor else contiguous(output)
            function = getattr(self._library, name)
            result = function(read.data_ptr(), written.data_ptr(), count, *numbers, self._handle, None)
            library.check(self._library, result, f"{name} failed")
            store(written, output)
