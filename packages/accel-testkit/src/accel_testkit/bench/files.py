# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""File I/O: our op and DeepSpeed's, and direct I/O as the limit of the machine."""

from __future__ import annotations

import mmap
import os
import queue
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from accel_ops.op_builder import AsyncIOBuilder
from accel_testkit.bench.stock import own_op
from accel_testkit.timing import medians, seconds, turns

BLOCK, DEPTH, LIMIT_THREADS = 1 << 20, 32, 8
_SIZE, _ROUNDS = 256 << 20, 5
#: What is transferred: name, page-locked memory, is it a write.
_CASES = (
    ("file read, page-locked", True, False),
    ("file written, page-locked", True, True),
    ("file read, ordinary memory", False, False),
    ("file written, ordinary memory", False, True),
)


def measure(build: bool, disk: Path) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield (what, size, seconds by contender).

    build: compile DeepSpeed's own op where it is not. disk: a folder on the disk to measure.
    """
    theirs, _ = own_op("AsyncIOBuilder", build=build)
    contenders: dict[str, Contender] = {"ours": Op(AsyncIOBuilder().load())}
    if theirs is not None:
        contenders["DeepSpeed"] = Op(theirs)
    with tempfile.TemporaryDirectory(prefix="accel-bench-", dir=disk) as name:
        folder = Path(name)
        limit = Limit()
        if limit.works(folder):
            contenders["limit"] = limit
        for what, locked, write in _CASES:
            found = medians(turns(_calls(contenders, folder, locked, write), _ROUNDS, warm_up=1))
            yield what, f"{_SIZE >> 20} MiB", found


def _calls(
    contenders: Mapping[str, Contender], folder: Path, locked: bool, write: bool
) -> dict[str, Callable[[], float]]:
    calls: dict[str, Callable[[], float]] = {}
    for name, contender in contenders.items():
        # Direct I/O needs aligned memory, which ordinary memory is not.
        own = contender.locked(_SIZE) if locked or name == "limit" else torch.empty(_SIZE, dtype=torch.uint8)
        contender.transfer(own.fill_(1), folder / name, True)
        calls[name] = partial(seconds, partial(contender.transfer, own, folder / name, write))
    return calls


class Contender(Protocol):
    """Reads and writes whole files."""

    def locked(self, size: int) -> torch.Tensor:
        """Page-locked bytes, as this contender makes them."""

    def transfer(self, tensor: torch.Tensor, path: Path, write: bool) -> None:
        """The tensor and the file's first bytes; ends when the transfer has."""


class Op:
    """An `aio_handle` of DeepSpeed's interface: ours, or DeepSpeed's own."""

    def __init__(self, module: Any, engine: str = "") -> None:
        self.module = module
        before = os.environ.get("ACCEL_IO_ENGINE", "")
        os.environ["ACCEL_IO_ENGINE"] = engine
        self.handle = module.aio_handle(BLOCK, DEPTH, False, True, 1)
        if engine:
            assert self.handle.engine()[0] == engine  # opened now, while the variable is set
        os.environ["ACCEL_IO_ENGINE"] = before

    def locked(self, size: int) -> torch.Tensor:
        """Memory of `new_cpu_locked_tensor`."""
        tensor: torch.Tensor = self.handle.new_cpu_locked_tensor(size, torch.empty(0, dtype=torch.uint8))
        return tensor

    def transfer(self, tensor: torch.Tensor, path: Path, write: bool) -> None:
        """An asynchronous request, awaited at once."""
        (self.handle.async_pwrite if write else self.handle.async_pread)(tensor, str(path), 0)
        assert self.handle.wait() == 1

    def one(self, tensor: torch.Tensor, path: Path, write: bool) -> None:
        """A synchronous request."""
        (self.handle.sync_pwrite if write else self.handle.sync_pread)(tensor, str(path), 0)

    def many(self, tensors: list[torch.Tensor], paths: list[Path], write: bool) -> None:
        """Several files, all in flight at once."""
        submit = self.handle.async_pwrite if write else self.handle.async_pread
        for tensor, path in zip(tensors, paths, strict=True):
            submit(tensor, str(path), 0)
        assert self.handle.wait() == len(paths)


class Limit:
    """Direct I/O of aligned blocks in huge pages, by 8 threads that do nothing else: what the disk can do."""

    def __init__(self) -> None:
        self.maps: list[mmap.mmap] = []  # memory of tensors, which do not own it

    def locked(self, size: int) -> torch.Tensor:
        """Memory in huge pages."""
        memory = mmap.mmap(-1, size + (2 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        self.maps.append(memory)
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        first = -whole.data_ptr() % (2 << 20)
        return whole[first : first + size]

    def works(self, folder: Path) -> bool:
        """Return whether the folder's file system takes direct I/O."""
        try:
            self.transfer(self.locked(BLOCK), folder / "direct", True)
        except (OSError, AttributeError):  # macOS has neither O_DIRECT nor huge pages
            return False
        return True

    def transfer(self, tensor: torch.Tensor, path: Path, write: bool) -> None:
        """Blocks from one queue; the space of a new file is reserved first."""
        memory = memoryview(tensor.numpy().data)
        flags = (os.O_RDWR | os.O_CREAT if write else os.O_RDONLY) | os.O_DIRECT
        descriptor = os.open(path, flags, 0o600)
        try:
            if write and os.fstat(descriptor).st_size < len(memory):
                os.posix_fallocate(descriptor, 0, len(memory))
            blocks: queue.SimpleQueue[int] = queue.SimpleQueue()
            for offset in range(0, len(memory), BLOCK):
                blocks.put(offset)
            with ThreadPoolExecutor(LIMIT_THREADS) as pool:
                for thread in [
                    pool.submit(_work, descriptor, memory, blocks, write) for _ in range(LIMIT_THREADS)
                ]:
                    thread.result()
        finally:
            os.close(descriptor)


def _work(descriptor: int, memory: memoryview, blocks: queue.SimpleQueue[int], write: bool) -> None:
    while True:
        try:
            offset = blocks.get_nowait()
        except queue.Empty:
            return
        part = memory[offset : offset + BLOCK]
        moved = os.pwrite(descriptor, part, offset) if write else os.preadv(descriptor, [part], offset)
        if moved != len(part):
            raise OSError(f"{moved} bytes of {len(part)} were transferred")
