# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Storage of torch.distributed.checkpoint on our engine. A save that does not end leaves the former checkpoint.

The format is torch's: its FileSystemReader loads what CheckpointWriter saved, and CheckpointReader what its
FileSystemWriter saved. Data files have a name of their own in each save; what belongs to the checkpoint is what
`.metadata` names, which is replaced last, and at once. torch wants streams: those here are transferred by the engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import io
import os
import pickle
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult

from accel_core.vendor import torch_threads
from accel_ops.errors import InvalidFile, TransferFailed
from accel_ops.io.engines import uses_library
from accel_ops.io.files import open_file, synchronize_folder
from accel_ops.io.session import File, TransferFuture
from accel_ops.memory import MEMORY

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


#: Data files of this writer, and of torch's.
_DATA = re.compile(r"__(?P<rank>\d+)_([0-9a-f]{32}_)?\d+\.distcp")
_METADATA = "*.metadata"


@dataclasses.dataclass
class _Prefix:
    """Return what torch's write_data demands of a plan: how the names of its files begin."""

    prefix: str


class _Files(FileSystem):
    """torch's access to files, with streams of ours. `failures` are the errors of files that were to be written.

    They have to be collected: torch.save replaces an error of its stream by another, and torch loses those of threads.
    """

    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        if mode == "rb":
            with reading(path) as file:
                yield file
            return
        written = None
        try:
            with writing(path, store=True) as written:
                yield written
        except BaseException as error:
            self.failures.append((written and written.failure) or error)
            if written is not None and written.failure is not None:
                # Its traceback leads to torch's own writer, in C++, which has the stream: nothing would free the two.
                written.failure = OSError(written.failure.errno, "an earlier write to the stream failed")
            raise

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Keep the file. torch removes the former `.metadata` first, and then renames: the rename alone replaces it."""


class CheckpointWriter(FileSystemWriter):
    """Storage writer for torch.distributed.checkpoint's `save` and `async_save`.

    path:         the folder of the checkpoint, on a file system that all ranks share.
    thread_count: files that each rank writes at once.
    cache_staged_state_dict: as of FileSystemWriter.
    overwrite:    whether a checkpoint in the folder is replaced; otherwise FileExistsError.

    When `save` returns, the device has the checkpoint. Before, and after any failure, readers find the former one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        thread_count: int = 1,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        torch_threads.finish_at_exit()  # saving is often a rank's last collective
        # torch's own fsync is not needed: a stream of ours stores the file when it is closed.
        super().__init__(
            path, sync_files=False, thread_count=thread_count, cache_staged_state_dict=cache_staged_state_dict
        )
        self.fs = self._files = _Files()
        self._overwrite = overwrite
        self._written: list[Path] = []

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Make the folder; raises OSError."""
        folder = self._folder()
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            synchronize_folder(os.path.dirname(os.path.abspath(folder)))
        if not self._overwrite and any(folder.glob(_METADATA)):
            raise FileExistsError(
                errno.EEXIST, "a checkpoint is there, which overwrite=False keeps", str(folder)
            )
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Make room, before any rank writes: remove what a save that did not end has left."""
        self._remove_unnamed()
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        """Write this rank's files; raises TransferFailed (an OSError)."""
        # A plan that the planner has cached has the names of a former save: never use these.
        prefix = f"__{self._rank()}_{uuid.uuid4().hex}_"
        self._files.failures.clear()
        try:
            written = self._write(dataclasses.replace(plan, storage_data=_Prefix(prefix)), planner)
        except BaseException:
            for path in self._folder().glob(f"{prefix}*"):
                path.unlink(missing_ok=True)
            raise
        self._written = list(self._folder().glob(f"{prefix}*"))
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Replace `.metadata`, then remove the former checkpoint's files; raises OSError."""
        for path in self._written:
            if not path.exists():
                raise _removed(path)
        try:
            super().finish(metadata, results)
            synchronize_folder(str(self._folder()))
        finally:
            for path in self._folder().glob(f"{_METADATA}.tmp"):
                path.unlink()
            self._remove_unnamed()

    def _write(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        try:
            written = super().write_data(plan, planner)
        except Exception:
            if self._files.failures:
                raise self._files.failures.pop(0) from None
            raise
        if self._files.failures:  # of a thread
            raise self._files.failures.pop(0)
        synchronize_folder(str(self._folder()))
        return written

    def _folder(self) -> Path:
        return Path(self.path)

    def _rank(self) -> int:
        return getattr(self, "rank", None) or 0  # older releases of torch do not say it

    def _remove_unnamed(self) -> None:
        """Remove data files that no `.metadata` names; without collectives only this rank's."""
        # Names are found in the bytes: nothing is unpickled from a folder that is only written to.
        named = b"".join(path.read_bytes() for path in self._folder().glob(_METADATA) if _is_file(path))
        for path in self._folder().iterdir():
            match = _DATA.fullmatch(path.name)
            if not match or path.name.encode() in named:
                continue
            if getattr(self, "use_collectives", True) or int(match["rank"]) == self._rank():
                path.unlink(missing_ok=True)


class CheckpointReader(FileSystemReader):
    """Storage reader for torch.distributed.checkpoint's `load`.

    Like torch's, it unpickles `.metadata`: load what you trust only.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.fs = _Files()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Read `.metadata`; raises InvalidFile (a ValueError), OSError."""
        try:
            return super().read_metadata(*args, **kwargs)
        except (
            pickle.UnpicklingError,
            EOFError,
            AttributeError,
            ImportError,
            IndexError,
            ValueError,
        ) as error:
            name = ".metadata" if kwargs.get("rank") is None else f"__{kwargs['rank']}.metadata"
            found = f"what cannot be read: {type(error).__name__}: {error}"
            raise _invalid(str(Path(self.path, name)), found) from error

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        """Read what the plan demands; raises InvalidFile for a file that is too short, OSError."""
        ends: dict[str, int] = {}
        for item in plan.items:
            info = self.storage_data[item.storage_index]
            ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
        for name, end in ends.items():
            path = Path(self.path, name)
            size = path.stat().st_size
            if size < end:
                raise _invalid(str(path), f"{size} bytes, where .metadata describes {end}")
        return super().read_data(plan, planner)


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)  # a pipe would never end, a link may lead to one


def _removed(path: Path) -> TransferFailed:
    return TransferFailed(
        f"the checkpoint in {path.parent} cannot be completed: {path.name} was removed while it was "
        "being saved",
        do="wait for the former save (async_save returns a future) before the next, or save to another folder",
        number=errno.ENOENT,
        name=str(path),
    )


def _invalid(name: str, found: str) -> InvalidFile:
    return InvalidFile(
        f"{name} is not a file of a checkpoint: {found}; expected a checkpoint of "
        "torch.distributed.checkpoint, complete",
        do="load another checkpoint; a copy that was interrupted has to be made again",
    )
