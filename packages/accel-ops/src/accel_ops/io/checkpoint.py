# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Storage of torch.distributed.checkpoint on our engine. A save that does not end leaves the former checkpoint.

The format is torch's: its FileSystemReader loads what CheckpointWriter saved, and CheckpointReader what its
FileSystemWriter saved. Data files have a name of their own in each save; what belongs to the checkpoint is what
`.metadata` names, which is replaced last, and at once.
"""

from __future__ import annotations

import contextlib
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
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult

from accel_core.vendor import torch_threads
from accel_ops.errors import InvalidFile, TransferFailed
from accel_ops.io import stream
from accel_ops.io.transfer import synchronize_folder

#: Data files of this writer, and of torch's.
_DATA = re.compile(r"__(?P<rank>\d+)_([0-9a-f]{32}_)?\d+\.distcp")
_METADATA = "*.metadata"


@dataclasses.dataclass
class _Prefix:
    """What torch's write_data demands of a plan: how the names of its files begin."""

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
            with stream.reading(path) as file:
                yield file
            return
        written = None
        try:
            with stream.writing(path, store=True) as written:
                yield written
        except BaseException as error:
            self.failures.append((written and written.failure) or error)
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
            path,
            sync_files=False,
            thread_count=thread_count,
            cache_staged_state_dict=cache_staged_state_dict,
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
                raise self._files.failures[0] from None
            raise
        if self._files.failures:  # of a thread
            raise self._files.failures[0]
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
        what=f"the checkpoint in {path.parent} cannot be completed",
        found=f"{path.name} was removed while it was being saved",
        expected="one save to a folder at a time",
        do="wait for the former save (async_save returns a future) before the next, or save to another folder",
        number=errno.ENOENT,
        name=str(path),
    )


def _invalid(name: str, found: str) -> InvalidFile:
    return InvalidFile(
        what=f"{name} is not a file of a checkpoint",
        found=found,
        expected="a checkpoint of torch.distributed.checkpoint, complete",
        do="load another checkpoint; a copy that was interrupted has to be made again",
    )
