# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads a dict of tensors in the layout of safetensors. A process that is killed leaves the former file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

from accel_host.errors import InvalidTensors
from accel_host.io.file import File
from accel_host.io.future import complete
from accel_host.io.layout import Layout, read_layout
from accel_host.io.replacement import Replacement

Progress: TypeAlias = "Callable[[int, int], None]"


def save(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a dict of tensors to a file that replaces `path` once all of it is on the device; returns its bytes.

    Readers, and a machine that crashes meanwhile, find the former file or the new one, never a mixture.
    progress: called with the bytes written so far and the total, about ten times a second.

    Raises InvalidTensors for other values than tensors, OSError; `path` is then as before.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InvalidTensors(
                what="a dict cannot be saved",
                found=f"{name!r}: {type(tensor).__name__}",
                expected="tensors only",
                do="save other values with torch.save, or as text in `metadata`",
            )
    layout = Layout.of(tensors, metadata or {})
    with Replacement(path) as new, File(new.name) as file:
        file.write(torch.frombuffer(bytearray(layout.header), dtype=torch.uint8))
        futures = [
            file.submit_write(tensors[name], entry.begin) for name, entry in layout.entries.items() if entry.size
        ]
        complete(futures, layout.end - len(layout.header), progress)
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
    layout = read_layout(path)
    tensors = {
        name: torch.empty(entry.shape, dtype=entry.dtype, device=device) for name, entry in layout.entries.items()
    }
    with File(path) as file:
        futures = [
            file.submit_read(tensors[name], entry.begin) for name, entry in layout.entries.items() if entry.size
        ]
        complete(futures, layout.end - len(layout.header), progress)
    return tensors
