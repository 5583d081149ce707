# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A limit of this process's memory: a cgroup where it may make one, else RLIMIT_DATA."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

_M_MMAP_THRESHOLD, _THRESHOLD = -3, 256 << 10


def return_freed_memory() -> None:
    """Have glibc unmap each large tensor that is freed. By default it soon keeps them in its heaps, in pieces."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


def limit(extra: int, root: Path = Path("/")) -> str:
    """Allow this process `extra` bytes more than it has now; returns what limits it. root: of /proc and /sys."""
    wanted = _kibibytes("VmRSS") * 1024 + extra
    try:
        return _cgroup(wanted, root)
    except OSError:
        # Not RLIMIT_AS: that counts addresses that are only reserved, as torch's libraries, and files that are mapped.
        wanted = _kibibytes("VmData") * 1024 + extra
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))
        return f"RLIMIT_DATA {wanted >> 20} MiB"


def peak() -> int:
    """Return the largest resident memory so far, in bytes."""
    return _kibibytes("VmHWM") * 1024


def _cgroup(wanted: int, root: Path) -> str:
    """Move this process to a cgroup v2 of its own; raises OSError where that cannot be."""
    folder = _parent(root) / f"zero-infinity-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.max").write_text(str(wanted), encoding="utf-8")
        (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    except OSError:
        folder.rmdir()
        raise
    return f"cgroup {folder.name}, {wanted >> 20} MiB"


def _parent(root: Path) -> Path:
    """Return this process's cgroup, or the one above it, whichever gives those below it the memory controller.

    One that does so has no processes itself, unless it is the root.
    """
    groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = next((line[3:].strip("/") for line in groups if line.startswith("0::")), None)
    if own is not None:
        for parent in dict.fromkeys((own, os.path.dirname(own))):
            controllers = root / "sys/fs/cgroup" / parent / "cgroup.subtree_control"
            if controllers.exists() and "memory" in controllers.read_text(encoding="utf-8").split():
                return controllers.parent
    raise OSError("no cgroup v2 with the memory controller")


def _kibibytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {name}")
