# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files as Python's binary streams, whose bytes the engine transfers: for libraries that want a stream."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from accel_ops.io.choice import uses_library
from accel_ops.io.file import File
from accel_ops.io.files import open_file
from accel_ops.io.future import TransferFuture
from accel_ops.pinned_memory import MEMORY

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Bytes of one transfer of a writer, which has two such buffers: one is filled while the other is written.
_BUFFER = 8 << 20
#: Bytes that a reader reads ahead; larger reads go to their destination directly.
_AHEAD = 64 << 10


class WriteStream(io.RawIOBase):
    """A stream to an open file. Its bytes are written in order, in large transfers; `complete` writes the last.

    failure: the first error of a transfer, for callers whose library hides it.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._buffers = [MEMORY.allocate(_BUFFER, torch.uint8) for _ in range(2)]
        self._views = [_view(buffer) for buffer in self._buffers]
        self._filled = self._offset = 0
        self._in_flight: TransferFuture | None = None
        self.failure: OSError | None = None

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written to the stream."""
        return self._offset + self._filled

    def write(self, data: Buffer, /) -> int:
        """Take all bytes; raises TransferFailed (an OSError) also for bytes that were written before."""
        if self.failure is not None:
            raise self.failure
        given = memoryview(data).cast("B")
        taken = 0
        while taken < len(given):
            count = min(_BUFFER - self._filled, len(given) - taken)
            self._views[0][self._filled : self._filled + count] = given[taken : taken + count]
            self._filled += count
            taken += count
            if self._filled == _BUFFER:
                self._start()
        return taken

    def complete(self) -> None:
        """Write what is in the buffers; raises TransferFailed (an OSError)."""
        if self._filled:
            self._start()
        self._join()

    def _start(self) -> None:
        self._join()
        with self._recorded():
            future = self._file.submit_write(self._buffers[0][: self._filled], self._offset)
        self._in_flight = future
        self._offset += self._filled
        self._filled = 0
        self._buffers.reverse()
        self._views.reverse()

    def _join(self) -> None:
        future, self._in_flight = self._in_flight, None
        if future is not None:
            with self._recorded():
                future.result()

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error
            raise


class _Reader(io.RawIOBase):
    def __init__(self, file: File, size: int) -> None:
        self._file, self._size, self._offset = file, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative position {start + offset}")
        self._offset = start + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def readinto(self, into: Buffer, /) -> int:
        view = memoryview(into).cast("B")
        count = min(len(view), max(0, self._size - self._offset))
        if count:
            self._file.read(torch.frombuffer(view, dtype=torch.uint8, count=count), self._offset)
            self._offset += count
        return count


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], *, store: bool) -> Iterator[WriteStream]:
    """Create a file for a stream, in place of one that is there, or of a link; raises OSError.

    store: whether the device has the bytes when the context has ended. After an exception the file is incomplete.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        # By its descriptor: by now the name may be that of something else.
        opened = open_file(made, write=True, size=_BUFFER, native=uses_library(), own=True)
    finally:
        os.close(made)
    try:
        with File(opened.fd) as file:
            stream = WriteStream(file)
            yield stream
            stream.complete()
        if store:
            os.fsync(opened.fd)
    finally:
        opened.close()


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[io.BufferedIOBase]:
    """Open a file as a stream that can be positioned; raises OSError."""
    opened = open_file(path, write=False, size=_BUFFER, native=uses_library())
    try:
        with (
            File(opened.fd) as file,
            io.BufferedReader(_Reader(file, os.fstat(opened.fd).st_size), _AHEAD) as stream,
        ):
            yield stream
    finally:
        opened.close()


def _view(buffer: torch.Tensor) -> memoryview:
    """Return its memory for bytes; the caller keeps the tensor."""
    return memoryview((ctypes.c_char * buffer.nbytes).from_address(buffer.data_ptr())).cast("B")
