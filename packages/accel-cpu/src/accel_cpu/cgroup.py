# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of this process's Linux control group (container, batch job, systemd unit)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Files(NamedTuple):
    """File names in one version of the cgroup interface."""

    controller: str
    mount: str
    limit: str
    usage: str
    #: Key of memory.stat: page cache that the kernel reclaims before it refuses memory.
    reclaimable: str


_VERSIONS = (
    Files("", "", "memory.max", "memory.current", "inactive_file"),
    Files("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


class Memory(NamedTuple):
    """Limit of the group and free memory below it, in bytes."""

    limit: int
    free: int


def memory(root: Path = Path("/")) -> Memory | None:
    """Return the lowest limit of this process's group and its ancestors; None if there is none."""
    bounds = list(_bounds(root))
    if not bounds:
        return None
    return Memory(min(bound.limit for bound in bounds), min(bound.free for bound in bounds))


def _bounds(root: Path) -> Iterator[Memory]:
    for files, folder in _groups(root):
        limit, usage = _number(folder / files.limit), _number(folder / files.usage)
        # "max" (version 2) reads as None; version 1 writes a number beyond any machine.
        if limit is not None and usage is not None:
            used = max(usage - _reclaimable(folder, files), 0)
            yield Memory(limit, max(limit - used, 0))


def _groups(root: Path) -> Iterator[tuple[Files, Path]]:
    """Yield the folders from this process's group up to the mount point, for each mounted version."""
    try:
        text = (root / "proc/self/cgroup").read_text()
    except OSError:
        return
    for controllers, path in re.findall(r"^[0-9]+:([^:]*):(/.*)$", text, re.MULTILINE):
        for files in _VERSIONS:
            if files.controller not in controllers.split(","):
                continue
            mount = root / "sys/fs/cgroup" / files.mount
            group = mount / path.lstrip("/")
            # In a container the group is often mounted at the mount point itself, while its path is that of the
            # host: those folders are missing, and the mount point has the limit.
            yield from ((files, folder) for folder in (group, *group.parents) if folder.is_relative_to(mount))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _reclaimable(folder: Path, files: Files) -> int:
    try:
        rows = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    for row in rows:
        key, _, value = row.partition(" ")
        if key == files.reclaimable:
            return int(value)
    return 0
