# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's op `async_io` (0.18 and 0.19): file I/O of ZeRO-Infinity, DeepNVMe and FastFileWriter.

Upstream returns -1, ends the process, or returns success; here each failed transfer raises OSError with errno, file,
offset and bytes done. `validate` compares the file with the tensor afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.host.library import host
from accel_ops.io import transfers
from accel_ops.io.engines import EngineOptions
from accel_ops.io.files import Name
from accel_ops.io.session import Session
from accel_ops.memory import MEMORY, as_bytes
from accel_ops.op import Op

#: Upstream's: bytes that a thread's share of a request must be a multiple of. Ours takes any size.
_ALIGNMENT = 512
_VALIDATED = 8 << 20


class aio_handle:
    """Upstream's class."""

    def __init__(
        self,
        block_size: int = 1 << 20,
        queue_depth: int = 128,
        single_submit: bool = False,
        overlap_events: bool = False,
        intra_op_parallelism: int = 1,
    ) -> None:
        arguments = {
            "block_size": block_size,
            "queue_depth": queue_depth,
            "intra_op_parallelism": intra_op_parallelism,
        }
        for name, value in arguments.items():
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise ValueError(f"{name} must be a positive integer: {value!r}")
        self._arguments = arguments
        self._single_submit, self._overlap_events = bool(single_submit), bool(overlap_events)
        self._session = Session(EngineOptions(block_size, queue_depth, intra_op_parallelism))
        #: Of requests that were started: each waits for its end.
        self._pending: list[Callable[[], None]] = []

    def get_block_size(self) -> int:
        """Return the argument."""
        return self._arguments["block_size"]

    def get_queue_depth(self) -> int:
        """Return the argument."""
        return self._arguments["queue_depth"]

    def get_single_submit(self) -> bool:
        """Return the argument. It has no effect: a batch of blocks is one system call."""
        return self._single_submit

    def get_overlap_events(self) -> bool:
        """Return the argument. It has no effect: new blocks are started as soon as others have ended."""
        return self._overlap_events

    def get_intra_op_parallelism(self) -> int:
        """Return the argument: workers that share the blocks of all requests."""
        return self._arguments["intra_op_parallelism"]

    def get_alignment(self) -> int:
        """Return 512 for each worker, as upstream. Requests of other sizes and offsets work, too."""
        return _ALIGNMENT * self.get_intra_op_parallelism()

    def engine(self) -> tuple[str, str]:
        """Return name of the engine, and the reason why it is this one. Upstream has no such method."""
        engine = self._session.engine
        return engine.name, engine.reason

    def read(self, buffer: torch.Tensor, filename: Name, validate: bool, file_offset: int = 0) -> int:
        """Read the tensor's bytes; returns 0. Raises OSError, InvalidOpArgument (a ValueError)."""
        self._run(buffer, filename, False, validate, file_offset)
        return 0

    def write(self, buffer: torch.Tensor, filename: Name, validate: bool, file_offset: int = 0) -> int:
        """Write the tensor's bytes; returns 0. Raises OSError, InvalidOpArgument (a ValueError)."""
        self._run(buffer, filename, True, validate, file_offset)
        return 0

    def pread(self, buffer: torch.Tensor, filename: Name, validate: bool, *rest: Any, **named: Any) -> int:
        """`pread(buffer, filename, validate, async, file_offset=0)`: returns 0 if `async`, else 1. Raises OSError."""
        return self._parallel(buffer, filename, False, validate, *_async_and_offset(*rest, **named))

    def pwrite(self, buffer: torch.Tensor, filename: Name, validate: bool, *rest: Any, **named: Any) -> int:
        """`pwrite(buffer, filename, validate, async, file_offset=0)`: returns 0 if `async`, else 1. Raises OSError."""
        return self._parallel(buffer, filename, True, validate, *_async_and_offset(*rest, **named))

    def sync_pread(self, buffer: torch.Tensor, filename: Name, file_offset: int = 0) -> int:
        """Read the tensor's bytes; returns 1. Raises OSError, InvalidOpArgument."""
        return self._parallel(buffer, filename, False, False, False, file_offset)

    def sync_pwrite(self, buffer: torch.Tensor, filename: Name, file_offset: int = 0) -> int:
        """Write the tensor's bytes; returns 1. Raises OSError, InvalidOpArgument."""
        return self._parallel(buffer, filename, True, False, False, file_offset)

    def async_pread(self, buffer: torch.Tensor, filename: Name, file_offset: int = 0) -> int:
        """Start to read the tensor's bytes; returns 0. `wait` completes it. Raises OSError, InvalidOpArgument."""
        return self._parallel(buffer, filename, False, False, True, file_offset)

    def async_pwrite(
        self,
        buffer: torch.Tensor,
        filename: Name | None = None,
        file_offset: int = 0,
        *,
        fd: int | None = None,
    ) -> int:
        """Start to write the tensor's bytes; returns 0. `wait` completes it. Raises OSError, InvalidOpArgument.

        filename: or the descriptor of an open file, which stays the caller's.
        """
        name = filename if fd is None else fd
        if name is None:
            raise TypeError("async_pwrite() needs filename or fd")
        return self._parallel(buffer, name, True, False, True, file_offset)

    def wait(self) -> int:
        """Complete all that was started; returns how many requests that were, 0 if none.

        Raises the first error, after all have ended; the others are its notes.
        """
        errors: list[Exception] = []
        count = 0
        while self._pending:
            try:
                self._pending[0]()
            except Exception as error:
                errors.append(error)
            self._pending.pop(0)  # not before: an interrupt (Ctrl-C) leaves it to the next call
            count += 1
        if errors:
            if others := [f"another transfer: {error}" for error in errors[1:]]:
                errors[0].__notes__ = others  # type: ignore[attr-defined]
            raise errors[0]
        return count

    def new_cpu_locked_tensor(
        self,
        num_elem: int,
        example_tenosr: torch.Tensor | None = None,
        *,
        example_tensor: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return `num_elem` zeros of the example's dtype in whole pages; warns where they cannot be locked."""
        example = example_tenosr if example_tensor is None else example_tensor
        if example is None:
            raise TypeError("new_cpu_locked_tensor() needs an example tensor")
        return MEMORY.allocate(num_elem, example.dtype)

    def free_cpu_locked_tensor(self, tensor: torch.Tensor) -> bool:
        """Free the block that begins with the tensor, after the transfers on it; False where none does."""
        return MEMORY.free(tensor.data_ptr())

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Return whether the memory is of `new_cpu_locked_tensor`, locked or not, or pinned by torch."""
        return MEMORY.owns(buffer) or bool(buffer.is_pinned())

    def _run(self, buffer: torch.Tensor, name: Name, write: bool, validate: bool, offset: int) -> None:
        self._session.run(buffer, name, write=write, offset=offset)
        if validate:
            _validate(buffer, name, offset)

    def _parallel(
        self, buffer: torch.Tensor, name: Name, write: bool, validate: bool, later: bool, offset: int
    ) -> int:
        if not later:
            self._run(buffer, name, write, validate, offset)
            return 1
        transfer = self._session.submit(buffer, name, write=write, offset=offset)

        def complete() -> None:
            transfer.wait()
            if validate:
                _validate(buffer, name, offset)

        self._pending.append(complete)
        return 0


def _async_and_offset(*rest: Any, **named: Any) -> tuple[bool, int]:
    """Return the arguments `async` and `file_offset`; the first is a keyword of Python and no parameter's name."""
    given = dict(zip(("async", "file_offset"), rest, strict=False))
    if len(rest) > len(given) or given.keys() & named.keys() or named.keys() - {"async", "file_offset"}:
        raise TypeError(f"expected async and file_offset=0, got {rest} and {named}")
    given |= named
    if "async" not in given:
        raise TypeError("missing argument: async")
    return bool(given["async"]), int(given.get("file_offset", 0))


def _validate(buffer: torch.Tensor, name: Name, offset: int) -> None:
    """Compare the tensor with the file, read through the page cache; raises TransferFailed where they differ."""
    host = as_bytes(buffer.cpu())
    path = f"/proc/self/fd/{name}" if isinstance(name, int) else os.fspath(name)
    with open(path, "rb") as file:
        file.seek(offset)
        for part in host.split(_VALIDATED):
            read = file.read(part.numel())
            if read != part.numpy().tobytes():
                raise transfers.differs(os.fsdecode(path), offset, buffer.nbytes)


def aio_read(
    buffer: torch.Tensor,
    filename: Name,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """Read the tensor's bytes from the begin of the file; returns 0. Raises what `aio_handle.read` raises."""
    return aio_handle(block_size, queue_depth, single_submit, overlap_events).read(buffer, filename, validate)


def aio_write(
    buffer: torch.Tensor,
    filename: Name,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """Write the tensor's bytes to the begin of the file; returns 0. Raises what `aio_handle.write` raises."""
    return aio_handle(block_size, queue_depth, single_submit, overlap_events).write(
        buffer, filename, validate
    )


def deepspeed_memcpy(dest: torch.Tensor, src: torch.Tensor) -> int:
    """Copy all elements of `src`, in order, to `dest`, whatever their shapes; returns 0. Raises InvalidOpArgument."""
    if dest.numel() != src.numel():
        raise InvalidOpArgument(
            f"one tensor cannot be copied to another: {src.numel()} elements for {dest.numel()}",
            do="pass tensors of the same size",
        )
    with torch.no_grad():
        dest.copy_(src.reshape(dest.shape))
    return 0


def _functions() -> Any:
    return SimpleNamespace(
        aio_handle=aio_handle, aio_read=aio_read, aio_write=aio_write, deepspeed_memcpy=deepspeed_memcpy
    )


ASYNC_IO = Op(
    "async_io",
    "AsyncIOBuilder",
    "Reads and writes of files, on io_uring or threads.",
    _functions,
    {"BUILD_VAR": "DS_BUILD_AIO"},
)
AsyncIOBuilder = ASYNC_IO.builder(__name__, host(_functions))
