# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads a dict of tensors in the layout of safetensors. A process that is killed leaves the former file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch

from accel_ops.io import memory
from accel_ops.io.choice import uses_library
from accel_ops.io.file import File
from accel_ops.io.files import open_file
from accel_ops.io.layout import Layout
from accel_ops.io.replacement import Replacement
from accel_ops.io.window import Progress, complete

#: Any size for which direct I/O is worth it.
_LARGE = 1 << 20


def save(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a dict of tensors to a file that replaces `path` once all of it is on the device; returns its bytes.

    Readers, also after a crash of the machine, find the former file or the new one, never a mixture. Tensors that share
    memory are written one by one.
    progress: called with the bytes written so far and the total, about ten times a second.

    Raises InvalidTensors for what the layout cannot hold, OSError; `path` is then as before.
    """
    for tensor in tensors.values():
        memory.check(tensor, write=True)
    layout = Layout.of(tensors, metadata or {})
    with Replacement(path) as new:
        with _opened(new.fd, write=True) as (file, _):
            file.write(torch.frombuffer(bytearray(layout.header), dtype=torch.uint8))
            starts = (
                (entry.size, partial(file.submit_write, tensors[name], entry.begin))
                for name, entry in layout.entries.items()
                if entry.size
            )
            complete(starts, layout.end - len(layout.header), progress)
        new.replace()
    return layout.end


def load(
    path: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> dict[str, torch.Tensor]:
    """Read a file of `save`, or of safetensors, into new tensors on the device.

    Raises InvalidFile (a ValueError) for a file of another kind or an incomplete one, OSError.
    """
    with _opened(path, write=False) as (file, fd):
        layout = Layout.read(file, fd, os.fspath(path))
        tensors = {
            name: torch.empty(entry.shape, dtype=entry.dtype, device=device)
            for name, entry in layout.entries.items()
        }
        starts = (
            (entry.size, partial(file.submit_read, tensors[name], entry.begin))
            for name, entry in layout.entries.items()
            if entry.size
        )
        complete(starts, layout.end - len(layout.header), progress)
    return tensors


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the `metadata` of a file of `save`, or of safetensors. Raises InvalidFile, OSError."""
    with _opened(path, write=False) as (file, fd):
        return Layout.read(file, fd, os.fspath(path)).metadata


@contextmanager
def _opened(name: str | os.PathLike[str] | int, *, write: bool) -> Iterator[tuple[File, int]]:
    """Open a file once: whoever replaces it meanwhile changes nothing of what is read or written."""
    opened = open_file(name, write=write, size=_LARGE, native=uses_library(), own=True)
    try:
        with File(opened.fd) as file:
            yield file, opened.fd
    finally:
        opened.close()
