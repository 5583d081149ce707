# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Build stock DeepSpeed ops in a private folder, under a lock that ends with its process.

torch locks a build with a file. If the build is killed, the file stays, and later processes wait for it forever.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from accel_core.native import torch_locks, trust
from accel_core.vendor import distribution_version

#: First line of the failure of checks that compare with it.
NOT_STARTED = "DeepSpeed's own CPU did not start"
_LOCK, _STARTED = "in-use", "started"
_POLL_SECONDS = 0.1


def environment() -> dict[str, str]:
    """Return the variables of DeepSpeed as it is without this project."""
    return {
        "DS_ACCELERATOR": "cpu",
        "ACCEL_BRIDGE": "0",
        "TORCH_EXTENSIONS_DIR": str(folder()),
        # torch searches PATH for ninja.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def folder() -> Path:
    """Return the folder for this Python, torch, DeepSpeed and processor; DeepSpeed compiles for the local processor."""
    facts = [platform.python_version(), platform.machine(), _processor()]
    facts += [distribution_version(name) or "" for name in ("torch", "deepspeed")]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:20]
    path = trust.cache_folder() / f"stock-deepspeed-{digest}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(
            r"^(?:flags|Features)\s*:.*", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE
        )
        return found[0] if found else ""
    return ""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the folder exclusively, to build there; wait for other processes."""
    with (folder() / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _unlock()
        yield


@contextlib.contextmanager
def started(start: Callable[[], None]) -> Iterator[None]:
    """Hold the folder, shared with other processes, to load what is built there.

    start: starts DeepSpeed, so that it compiles; called once, while no other process holds the folder.
    """
    with (folder() / _LOCK).open("w") as lock:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if (folder() / _STARTED).exists() and not _torch_locks():
                break
            if _hold_alone(lock):
                _unlock()
                start()
                (folder() / _STARTED).touch()
            else:
                fcntl.flock(lock, fcntl.LOCK_UN)
                time.sleep(_POLL_SECONDS)
        yield


def _hold_alone(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _torch_locks() -> list[Path]:
    return torch_locks.stale_among(folder().glob("*/lock"))


def _unlock() -> None:
    """Remove locks of killed builds; the folder must be held exclusively."""
    for left in _torch_locks():
        left.unlink()
