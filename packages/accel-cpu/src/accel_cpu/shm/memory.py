# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors in shared memory, and the errors in which they end.

A tensor whose memory does not hold its values in order goes through a copy.
"""

from __future__ import annotations

import copy
import os
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from accel_core.errors import AccelError
from accel_cpu.errors import CollectiveFailed, CollectiveMismatch
from accel_cpu.process_group import contiguous, size_of, store
from accel_cpu.shm import library, rendezvous
from accel_cpu.shm.library import DTYPES

_NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
#: In the order of ACCEL_SHM_SUM ….
OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")

#: accel_shm_request: kind, type, operation, root, bytes, detail.
_Request: TypeAlias = tuple[int, int, int, int, int, int]


class SharedMemory:
    """One rank's end of the memory that a group of ranks shares. One thread at a time may call it.

    Operations are numbers: ACCEL_SHM_SUM …. ranks: those that share the memory, as the process group counts them.
    """

    #: What errors call a request.
    kinds: ClassVar = {
        library.BARRIER: "barrier",
        library.ALL_REDUCE: "all_reduce",
        library.BROADCAST: "broadcast",
        library.ALL_GATHER: "all_gather",
        library.REDUCE_SCATTER: "reduce_scatter",
        library.ALL_TO_ALL: "all_to_all",
        library.REDUCE: "reduce",
    }

    def __init__(self, group: Any, rank: int, ranks: Sequence[int], timeout_ms: int) -> None:
        #: accel_shm.Group; None once it is closed.
        self.group: Any = group
        self._process = os.getpid()
        self._failure: AccelError | None = None
        self._rank, self._ranks = rank, ranks
        self._compared: dict[int, str] = {}  # what `compare` was called with, by its number
        self.set_timeout(timeout_ms)

    def run(
        self,
        kind: int,
        dtype: int,
        size: int,
        *,
        operation: int = -1,
        root: int = 0,
        detail: int = 0,
        read: int = 0,
        write: int = 0,
        splits: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> None:
        """Run one collective of all ranks; raises `CollectiveMismatch`, `CollectiveFailed` or KeyboardInterrupt.

        dtype:       as in `DTYPES`; the first ones are those of csrc/accel_shm.h, which can be reduced.
        size:        bytes, as csrc/accel_shm.h says for the kind.
        detail:      a number that has to be equal on all ranks.
        read, write: addresses.
        splits:      bytes to send to and to receive from each rank.
        """
        if self.group is None or self._failure is not None:
            raise copy.copy(self._failure) if self._failure else _shut_down()
        threads = torch.get_num_threads() if size > 1 << 20 else 1
        sends, receives = (array("q", sizes).tobytes() for sizes in splits) if splits else (None, None)
        request = (kind, dtype, operation, root, size, detail)
        failed = self.group.run(*request, read, write, threads, sends, receives)
        if failed:
            raise self._failed(request, *failed)

    def reduced_at_once(self, tensor: Tensor, operation: int) -> bool:
        """Reduce a small plain tensor in place, if no other call is under way; False, with nothing done, for others."""
        done = self.group is not None and self.group.all_reduce(tensor, operation)
        if done:  # what `run` gets, where it fails
            request = (
                library.ALL_REDUCE,
                DTYPES[tensor.dtype],
                operation,
                0,
                tensor.nbytes,
                shape_of(tensor),
            )
            raise self._failed(request, *done)
        return done is None

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.run(library.BARRIER, 0, 0)

    def all_reduce(self, tensor: Tensor, operation: int) -> None:
        """Reduce in place."""
        flat = contiguous(tensor)
        self.run(
            library.ALL_REDUCE, DTYPES[tensor.dtype], flat.nbytes, operation=operation, detail=shape_of(tensor),
            write=flat.data_ptr(),
        )  # fmt: skip
        store(flat, tensor)

    def reduce(self, tensor: Tensor, operation: int, root: int, *, receives: bool) -> None:
        """Reduce to rank `root`, in place; the others' tensors keep their values. receives: whether this is it."""
        flat = contiguous(tensor)
        self.run(
            library.REDUCE, DTYPES[tensor.dtype], flat.nbytes, operation=operation, root=root,
            detail=shape_of(tensor), write=flat.data_ptr(),
        )  # fmt: skip
        if receives:
            store(flat, tensor)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Receive the tensor of rank `root`."""
        flat = contiguous(tensor)
        self.run(
            library.BROADCAST, DTYPES[tensor.dtype], size_of(flat), root=root, detail=shape_of(tensor),
            write=flat.data_ptr(),
        )  # fmt: skip
        store(flat, tensor)

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        """Gather the tensors of all ranks, in rank order, in an output that has room for them."""
        flat, gathered = contiguous(tensor), contiguous(output)
        self.run(
            library.ALL_GATHER, DTYPES[tensor.dtype], size_of(flat), read=flat.data_ptr(),
            write=gathered.data_ptr(),
        )  # fmt: skip
        store(gathered, output)

    def reduce_scatter(self, output: Tensor, tensor: Tensor, operation: int) -> None:
        """Reduce this rank's part of the tensors, which are as many times larger than the output as there are ranks."""
        flat, reduced = contiguous(tensor), contiguous(output)
        self.run(
            library.REDUCE_SCATTER, DTYPES[output.dtype], size_of(reduced), operation=operation,
            read=flat.data_ptr(), write=reduced.data_ptr(),
        )  # fmt: skip
        store(reduced, output)

    def all_to_all(self, output: Tensor, tensor: Tensor, sends: list[int], receives: list[int]) -> None:
        """Send and receive parts of `sends` and `receives` bytes to and from each rank."""
        flat, received = contiguous(tensor), contiguous(output)
        self.run(
            library.ALL_TO_ALL, DTYPES[tensor.dtype], 0, read=flat.data_ptr(), write=received.data_ptr(),
            splits=(sends, receives),
        )  # fmt: skip
        store(received, output)

    def compare(self, what: str, tensor: Tensor | None, root: int) -> None:
        """Wait for all ranks, and raise `CollectiveMismatch` unless they are about to do the same elsewhere."""
        dtype = -1 if tensor is None else DTYPES[tensor.dtype]
        size = 0 if tensor is None or tensor.layout != torch.strided else size_of(tensor)
        number = zlib.crc32(what.encode())
        self._compared[number] = what
        self.run(library.BARRIER, dtype, size, root=root, detail=number)

    def break_off(self, status: int = library.INTERRUPTED, rank: int = -1) -> None:
        """End the group on all ranks, also for a thread that is waiting in `run`.

        rank: whom it is about; default: this one.
        """
        if self.group is not None:
            self.group.end(status, self._ranks.index(self._rank) if rank < 0 else rank)

    def close(self) -> None:
        """Leave the group: after a call that is under way. Idempotent."""
        group, self.group = self.group, None
        if group is not None and os.getpid() == self._process:
            rendezvous.leave(group)

    def set_timeout(self, milliseconds: int) -> None:
        """Set how long a collective waits for a rank."""
        self._timeout_ms = milliseconds
        if self.group is not None:
            self.group.set_timeout(milliseconds)

    def _failed(self, request: _Request, status: int, about: int, theirs: _Request) -> AccelError:
        if status < library.HOST_LOST and 0 <= about < len(self._ranks):
            about = self._ranks[about]
        error = self._error(self._described(request), status, f"rank {about}", theirs)
        if status != library.BAD_REQUEST:  # which ends nothing
            self._failure = copy.copy(error)
        return error

    def _error(self, mine: str, status: int, rank: str, theirs: _Request) -> AccelError:
        if status == library.MISMATCH and theirs[0]:
            found = f"{rank}: {self._described(theirs)}\nrank {self._rank}: {mine}"
            if theirs[0] == library.ALL_TO_ALL and theirs[4] != theirs[5]:
                receiver = f"rank {self._ranks[theirs[3]]}"
                found = f"{rank} sends {theirs[4]} bytes to {receiver}, which expects {theirs[5]}"
                rank = receiver if rank == f"rank {self._rank}" else rank
            return CollectiveMismatch(
                f"{rank} and rank {self._rank} called different collectives: {found}",
                do="print the shape and dtype on each rank ahead of the call, or set TORCH_DISTRIBUTED_DEBUG=DETAIL",
            )
        if status == library.HOST_DIFFERS:
            return CollectiveMismatch(
                f"the host of {rank} and that of rank {self._rank} called different collectives: rank "
                f"{self._rank}: {mine}",
                do=f"look at the errors of {rank} and of the first rank of this host, which have both calls",
            )
        found = {
            library.DEAD: f"{rank} has ended",
            library.STOPPED: f"{rank} has been stopped by a signal for some seconds",
            library.TIMEOUT: f"{rank} did not arrive within {self._timeout_ms / 1000:g} s",
            library.INTERRUPTED: f"{rank} was interrupted",
            library.LEFT: f"{rank} has left the process group",
            library.MISMATCH: f"{rank} called something else in an earlier collective",
            library.HOST_LOST: f"the host of {rank} was lost",
        }.get(status, f"the request was refused: {mine}")
        return CollectiveFailed(
            f"a collective of this process group failed on rank {self._rank}: {mine}: {found}",
            do=f"look at the last output of {rank}; the process group cannot be used any more",
        )

    def _described(self, request: _Request) -> str:
        kind, type_number, number, root, size, detail = request
        dtype = _NAMES[type_number] if 0 <= type_number < len(_NAMES) else "?"
        operation = f" ({OPERATIONS[number].lower()})" if 0 <= number < len(OPERATIONS) else ""
        name = self.kinds.get(kind, "?")
        if kind == library.BARRIER and detail:
            name = f"{self._compared.get(detail, 'another collective')} by gloo"
        return f"{name}{operation} of {size} bytes of {dtype}, root {root}, shape {detail:#x}"


def shape_of(tensor: Tensor) -> int:
    """Return a number for the shape, without dimensions of size 1; 0 for a single one: bytes are compared anyway."""
    number: int = library.load().shape(tensor.shape)
    return number


def _shut_down() -> CollectiveFailed:
    return CollectiveFailed(
        "this process group cannot be used any more: it was shut down", do="call init_process_group again"
    )
