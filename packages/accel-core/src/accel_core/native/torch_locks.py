# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lock files left by killed builds of torch extensions. torch waits for such a file forever."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from accel_core.native import trust

_NAME = "lock"
#: Age in seconds of a stale lock, on systems without /proc.
_OLD = 600.0


def stale() -> list[Path]:
    """Return the locks in the user's folder of torch extensions that no local process has open."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    root = Path(given) if given else trust.platform_cache("torch_extensions")
    # The default folder has one subfolder for each Python and CUDA.
    return stale_among([*root.glob(f"*/{_NAME}"), *root.glob(f"*/*/{_NAME}")])


def stale_in(build: Path) -> list[Path]:
    """Return the lock of a build folder, if no local process has it open."""
    return stale_among([build / _NAME])


def stale_among(locks: Iterable[Path]) -> list[Path]:
    """Return the existing files among these that no local process has open."""
    there = [lock for lock in locks if lock.is_file()]
    if not there:
        return []
    if not Path("/proc/self/fd").is_dir():
        return [lock for lock in there if time.time() - lock.stat().st_mtime > _OLD]
    used = set(_open_files())
    return [lock for lock in there if str(lock.resolve()) not in used]


def _open_files() -> Iterator[str]:
    """Yield the open files of all processes that this user may inspect."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # closed in between, or of another user
            yield os.readlink(descriptor)
