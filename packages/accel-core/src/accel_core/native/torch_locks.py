# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lock files left by killed builds of torch extensions. torch before 2.14 waits for such a file forever."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from accel_core.native import trust
from accel_core.vendor import distribution_version, in_range


def stale() -> list[Path]:
    """Return the locks in the user's folder of torch extensions that no local process has open."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    root = Path(given) if given else trust.platform_cache("torch_extensions")
    # The default folder has one subfolder for each Python and CUDA.
    return stale_among([*root.glob("*/lock"), *root.glob("*/*/lock")])


def stale_among(locks: Iterable[Path]) -> list[Path]:
    """Return the existing files among these that no local process has open; none since torch 2.14."""
    waits = in_range(distribution_version("torch") or "0", "<2.14")  # newer builds use locks of the kernel
    there = [lock for lock in locks if waits and lock.is_file()]
    used = set(_open_files()) if there else set()
    return [lock for lock in there if str(lock.resolve()) not in used]


def _open_files() -> Iterator[str]:
    """Yield the open files of all processes that this user may inspect."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # ended in between, or of another user
            yield from (file.path for file in process.open_files())
