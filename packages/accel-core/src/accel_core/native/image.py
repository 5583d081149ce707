# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Gives the dynamic loader bytes in memory to load from, which nobody can change between their check and their use.

Neither the name nor the inode of the file in the cache reaches the loader. Even a process that opened that file for
writing earlier, while it could, has no effect on what is loaded.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from accel_core.native import cache

Loaded = TypeVar("Loaded")
_DESCRIPTORS = Path("/proc/self/fd")
_number = itertools.count()


def load(content: bytes, name: str, loader: Callable[[str], Loaded]) -> Loaded:
    """Return what `loader` makes of the path of a file with this content; the file is gone afterwards.

    loader: maps the file, as ctypes.CDLL does.
    """
    with contextlib.ExitStack() as stack:
        path = _in_memory(content, name, stack) or _in_private_folder(content, name, stack)
        return loader(path)


def _in_memory(content: bytes, name: str, stack: contextlib.ExitStack) -> str | None:
    """Return the path of a file without a name, None where the system has none or maps no code from it."""
    if not hasattr(os, "memfd_create") or not _DESCRIPTORS.is_dir():
        return None
    try:
        file = stack.enter_context(os.fdopen(os.memfd_create(name), "wb"))
        file.write(content)
        file.flush()
        mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError:
        return None
    # The loader returns the earlier library for a path that it knows, and numbers of descriptors are used again.
    return f"{_DESCRIPTORS}/{'./' * next(_number)}{file.fileno()}"


def _in_private_folder(content: bytes, name: str, stack: contextlib.ExitStack) -> str:
    folder = tempfile.TemporaryDirectory(prefix="accel-", dir=cache.temporary(), ignore_cleanup_errors=True)
    path = Path(stack.enter_context(folder)) / f"{name}.so"
    path.write_bytes(content)
    return str(path)
