# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors in shared memory, and the errors in which they end.

A tensor whose memory does not hold its values in order goes through a copy.
"""

from __future__ import annotations

import copy
import zlib
from array import array
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeAlias

import torch
from torch import Tensor

from accel_core.errors import AccelError
from accel_cpu.errors import CollectiveFailed, CollectiveMismatch
from accel_cpu.process_group import contiguous, store
from accel_cpu.shm import library, rendezvous
from accel_cpu.shm.library import DTYPES

_NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
#: In the order of ACCEL_SHM_SUM ….
OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")

#: kind, type, operation, root, bytes, detail: a number, or in a call a shape.
_Request: TypeAlias = tuple[int, int, int, int, int, Any]


class SharedMemory:
    """One rank's end of the memory that a group of ranks shares. One thread at a time may call it.

    Operations are numbers: ACCEL_SHM_SUM …. ranks: those that share the memory, as the process group counts them.
    """

    #: What errors call a request, by its kind.
    kinds: Sequence[str] = (
        "", "barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce",
    )  # fmt: skip

    def __init__(self, group: Any, rank: int, ranks: Sequence[int], timeout: timedelta) -> None:
        #: accel_shm.Group; None once it is closed.
        self.group: Any = group
        #: The last call on another thread.
        self.pending: Future[None] | None = None
        self._failure: AccelError | None = None
        self._rank, self._ranks, self._timeout = rank, ranks, timeout
        self._compared: dict[int, str] = {}  # what `compare` was called with, by its number

    def reduced_at_once(self, tensor: Tensor, operation: int) -> bool:
        """Reduce a small plain tensor in place, if no other call is under way; False, with nothing done, for others."""
        if self.group is None or not (self.pending is None or self.pending.done()):
            return False
        done = self.group.all_reduce(tensor, operation)
        if done:
            raise self._failed(*done)
        return done is None

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._run((library.BARRIER, 0, -1, 0, 0, 0))

    def all_reduce(self, tensor: Tensor, operation: int) -> None:
        """Reduce in place."""
        self._move(library.ALL_REDUCE, tensor, tensor, tensor.nbytes, operation, detail=tensor.shape)

    def reduce(self, tensor: Tensor, operation: int, root: int) -> None:
        """Reduce to rank `root`, in place; the others' tensors keep their values."""
        self._move(library.REDUCE, tensor, tensor, tensor.nbytes, operation, root, tensor.shape)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Receive the tensor of rank `root`."""
        self._move(library.BROADCAST, tensor, tensor, tensor.nbytes, root=root, detail=tensor.shape)

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        """Gather the tensors of all ranks, in rank order, in an output that has room for them."""
        self._move(library.ALL_GATHER, output, tensor, tensor.nbytes)

    def reduce_scatter(self, output: Tensor, tensor: Tensor, operation: int) -> None:
        """Reduce this rank's part of the tensors, which are as many times larger than the output as there are ranks."""
        self._move(library.REDUCE_SCATTER, output, tensor, output.nbytes, operation)

    def all_to_all(self, output: Tensor, tensor: Tensor, sends: list[int], receives: list[int]) -> None:
        """Send and receive parts of `sends` and `receives` bytes to and from each rank."""
        self._move(library.ALL_TO_ALL, output, tensor, 0, splits=(sends, receives))

    def _move(
        self, kind: int, output: Tensor, tensor: Tensor, size: int, operation: int = -1, root: int = 0,
        detail: Any = 0, splits: Sequence[Sequence[int]] = (),
    ) -> None:  # fmt: skip
        """Run a collective that reads `tensor` and writes `output`. size: bytes, as csrc/accel_shm.h says."""
        read = contiguous(tensor)
        written = read if output is tensor else contiguous(output)
        tables = [array("q", sizes).tobytes() for sizes in splits]
        request = (kind, DTYPES[output.dtype], operation, root, size, detail)
        self._run(request, read.data_ptr(), written.data_ptr(), *tables)
        store(written, output)

    def _run(self, request: _Request, *buffers: Any) -> None:
        """Run one collective of all ranks; raises `CollectiveMismatch`, `CollectiveFailed` or KeyboardInterrupt.

        buffers: the addresses to read and to write; bytes to send to and to receive from each rank.
        """
        if self.group is None:
            raise (
                copy.copy(self._failure)
                if self._failure
                else CollectiveFailed(
                    "this process group cannot be used any more: it was shut down",
                    do="call init_process_group again",
                )
            )
        threads = torch.get_num_threads() if request[4] > 1 << 20 else 1
        failed = self.group.run(*request, threads, *buffers)
        if failed:
            raise self._failed(*failed)

    def compare(self, what: str, tensor: Tensor | None, root: int) -> None:
        """Wait for all ranks, and raise `CollectiveMismatch` unless they are about to do the same elsewhere."""
        dtype = -1 if tensor is None else DTYPES[tensor.dtype]
        size = 0 if tensor is None or tensor.layout != torch.strided else tensor.nbytes
        number = zlib.crc32(what.encode())
        self._compared[number] = what
        self._run((library.BARRIER, dtype, -1, root, size, number))

    def break_off(self, status: int = library.INTERRUPTED, rank: int = -1) -> None:
        """End the group on all ranks, also for a thread that is waiting in `run`.

        rank: whom it is about; default: this one.
        """
        if self.group is not None:
            self.group.end(status, self._ranks.index(self._rank) if rank < 0 else rank)

    def close(self) -> None:
        """Leave the group: after a call that is under way. Idempotent."""
        group, self.group = self.group, None
        if group is not None:
            rendezvous.leave(group)

    def _failed(self, status: int, about: int, theirs: _Request, mine: _Request) -> AccelError:
        """Return the error in which the group has ended, which is that of its first call to fail."""
        if self._failure is None:
            about = about if status in (library.HOST_LOST, library.HOST_DIFFERS) else self._ranks[about]
            return self._kept(self._error(self._described(mine), status, about, theirs))
        return copy.copy(self._failure)

    def _kept(self, error: AccelError) -> AccelError:
        """Return an error that later calls raise, too."""
        self._failure = error
        return copy.copy(error)

    def _error(self, mine: str, status: int, about: int, theirs: _Request | None = None) -> AccelError:
        rank = f"rank {about}"
        if status == library.MISMATCH and theirs and theirs[0]:
            if theirs[0] == library.ALL_TO_ALL and theirs[4] != theirs[5]:
                return self._parts_differ(about, self._ranks[theirs[3]], *theirs[4:])
            return self._mismatch(rank, f"{rank}: {self._described(theirs)}\nrank {self._rank}: {mine}")
        if status == library.HOST_DIFFERS:
            return self._mismatch(f"the host of {rank}", f"rank {self._rank}: {mine}")
        found = {
            library.DEAD: f"{rank} has ended",
            library.TIMEOUT: f"{rank} did not arrive within {self._timeout.total_seconds():g} s",
            library.INTERRUPTED: f"{rank} was interrupted",
            library.LEFT: f"{rank} has left the process group",
            library.MISMATCH: f"{rank} called something else in an earlier collective",
            library.HOST_LOST: f"the host of {rank} was lost",
        }[status]
        return CollectiveFailed(
            f"a collective of this process group failed on rank {self._rank}: {mine}: {found}",
            do=f"look at the last output of {rank}; the process group cannot be used any more",
        )

    def _parts_differ(self, sender: int, receiver: int, sent: int, expected: int) -> CollectiveMismatch:
        found = f"rank {sender} sends {sent} bytes to rank {receiver}, which expects {expected}"
        return self._mismatch(f"rank {receiver if sender == self._rank else sender}", found)

    def _mismatch(self, other: str, found: str) -> CollectiveMismatch:
        return CollectiveMismatch(
            f"{other} and rank {self._rank} called different collectives: {found}",
            do="print the shape and dtype on each rank ahead of the call, or set TORCH_DISTRIBUTED_DEBUG=DETAIL",
        )

    def _described(self, request: _Request) -> str:
        kind, type_number, number, root, size, detail = request
        dtype = _NAMES[type_number] if 0 <= type_number < len(_NAMES) else "?"
        operation = f" ({OPERATIONS[number].lower()})" if 0 <= number < len(OPERATIONS) else ""
        name = self.kinds[kind]
        if kind == library.BARRIER and detail:
            name = f"{self._compared.get(detail, 'another collective')} by gloo"
        return f"{name}{operation} of {size} bytes of {dtype}, root {root}, shape {detail:#x}"
