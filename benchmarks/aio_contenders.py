# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.aio` compares: our engines, DeepSpeed's op where it can be built, and the limit of the machine."""

from __future__ import annotations

import mmap
import os
import queue
import threading
from pathlib import Path
from typing import Any, Protocol

import torch

BLOCK, DEPTH, LIMIT_THREADS = 1 << 20, 32, 8


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
            threads = [
                threading.Thread(target=_work, args=(descriptor, memory, blocks, write))
                for _ in range(LIMIT_THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
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
        assert moved == len(part)


def upstream() -> tuple[Any, str]:
    """DeepSpeed's own module, or None and the reason; compiles it when it is not in torch's cache of extensions."""
    from deepspeed.ops.op_builder import cpu

    try:
        return cpu.AsyncIOBuilder().load(verbose=False), ""
    except Exception as error:  # a missing header, compiler or library, each with an exception of its own
        return None, f"DeepSpeed's op cannot be built here: {str(error).strip().splitlines()[-1]}"
