# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on the addresses of contiguous memory, and the errors in which they end."""

from __future__ import annotations

import copy
import ctypes
import os
import struct
import threading
from collections.abc import Sequence

import torch

from accel_core.errors import AccelError
from accel_cpu.errors import CollectiveFailed, CollectiveMismatch
from accel_cpu.shm import library, rendezvous

_KINDS = {
    library.BARRIER: "barrier",
    library.ALL_REDUCE: "all_reduce",
    library.BROADCAST: "broadcast",
    library.ALL_GATHER: "all_gather",
    library.REDUCE_SCATTER: "reduce_scatter",
    library.ALL_TO_ALL: "all_to_all",
}
#: Operations in the order of ACCEL_SHM_SUM …; -1 where there is none.
_OPERATIONS = ("sum", "avg", "product", "min", "max")


def _is_main_thread_gone() -> int:
    return int(not threading.main_thread().is_alive())


_MAIN_THREAD = threading.main_thread().ident
_PACK_REQUEST = struct.Struct("iiiiqq").pack_into  # accel_shm_request
_NEVER, _WITH_MAIN_THREAD = library.Cancelled(), library.Cancelled(_is_main_thread_gone)


class SharedMemory:
    """One rank's end of the memory that a group of ranks shares. One thread at a time may call it.

    dtypes: all that ranks may name in a request, as a list of names; a request has the index.
    """

    def __init__(self, handle: int, rank: int, timeout_ms: int, dtypes: Sequence[str]) -> None:
        self._handle: int | None = handle
        self._process = os.getpid()
        self._failure: AccelError | None = None
        self._rank, self._dtypes = rank, dtypes
        self._timeout_ms = timeout_ms
        self._library = library.load()
        self._request, self._buffers, self._result = library.Request(), library.Buffers(), library.Result()
        self._buffers.python = ctypes.addressof(library.PYTHON)
        self._arguments = tuple(map(ctypes.addressof, (self._request, self._buffers, self._result)))
        self._lists: list[ctypes.Array[ctypes.c_int64]] = []

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

        dtype:       index in `dtypes`; the first ones are those of csrc/accel_shm.h, which can be reduced.
        size:        bytes, as csrc/accel_shm.h says for the kind.
        detail:      a number that has to be equal on all ranks.
        read, write: addresses.
        splits:      bytes to send to and to receive from each rank.
        """
        if self._handle is None or self._failure is not None:
            raise copy.copy(self._failure) if self._failure else _shut_down()
        buffers = self._buffers
        # One call instead of an assignment for each field.
        _PACK_REQUEST(self._request, 0, kind, dtype, operation, root, size, detail)
        buffers.input, buffers.output = read, write
        buffers.timeout_ms = self._timeout_ms
        # Signals are for the main thread. Another one has to notice that the interpreter waits for it to end.
        is_main = threading.get_ident() == _MAIN_THREAD
        buffers.cancelled = _NEVER if is_main else _WITH_MAIN_THREAD
        buffers.threads = torch.get_num_threads() if size > 1 << 20 else 1
        if splits is not None:
            self._lists = [(ctypes.c_int64 * len(sizes))(*sizes) for sizes in splits]
            buffers.sends, buffers.receives = map(ctypes.addressof, self._lists)
        if self._library.accel_shm_run(self._handle, *self._arguments) != library.OK:
            raise self._failed()

    def break_off(self) -> None:
        """End the group on all ranks, also for a thread that is waiting in `run`."""
        if self._handle is not None:
            self._library.accel_shm_break(self._handle)

    def close(self) -> None:
        """Give the memory back. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._process:
            rendezvous.leave(handle)

    def set_timeout(self, milliseconds: int) -> None:
        """Set how long a collective waits for a rank."""
        self._timeout_ms = milliseconds

    def _described(self, request: library.Request) -> str:
        dtype = self._dtypes[request.type] if 0 <= request.type < len(self._dtypes) else "?"
        operation = (
            f" ({_OPERATIONS[request.operation]})" if 0 <= request.operation < len(_OPERATIONS) else ""
        )
        kind = _KINDS.get(request.kind, "?")
        return f"{kind}{operation} of {request.bytes} bytes of {dtype}, root {request.root}, shape {request.detail:#x}"

    def _failed(self) -> AccelError:
        error = self._error()
        if self._result.status != library.BAD_REQUEST:  # which ends nothing
            self._failure = copy.copy(error)
        return error

    def _error(self) -> AccelError:
        result, mine = self._result, self._described(self._request)
        rank = f"rank {result.rank}"
        if result.status == library.MISMATCH and result.theirs.kind:
            return CollectiveMismatch(
                what=f"{rank} and rank {self._rank} called different collectives",
                found=f"{rank}: {self._described(result.theirs)}\nrank {self._rank}: {mine}",
                expected="the same collective, with tensors of one shape and type, on all ranks",
                do="print the shape and dtype on each rank ahead of the call, or set TORCH_DISTRIBUTED_DEBUG=DETAIL",
            )
        found = {
            library.DEAD: f"{rank} has ended",
            library.STOPPED: f"{rank} has been stopped by a signal for some seconds",
            library.TIMEOUT: f"{rank} did not arrive within {self._timeout_ms / 1000:g} s",
            library.INTERRUPTED: f"{rank} was interrupted",
            library.LEFT: f"{rank} has left the process group",
            library.MISMATCH: f"{rank} called something else in an earlier collective",
        }.get(result.status, f"the request was refused: {mine}")
        return CollectiveFailed(
            what=f"a collective of this process group failed on rank {self._rank}: {mine}",
            found=found,
            expected="all ranks of the group alive, and at the same call",
            do=f"look at the last output of {rank}; the process group cannot be used any more",
        )


def _shut_down() -> CollectiveFailed:
    return CollectiveFailed(
        what="this process group cannot be used any more",
        found="it was shut down",
        expected="the process group as init_process_group made it",
        do="call init_process_group again",
    )
