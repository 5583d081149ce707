# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a native library is made of, and the key under which its build is kept."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: What every library is compiled with; the rest is the source's own.
FLAGS = ("-std=c++17", "-fPIC")


@dataclass(frozen=True)
class Source:
    """C++ sources that make one shared library.

    name:     of the library (`accel_host`).
    units:    the files that are compiled.
    folders:  of headers; every file in them, and beside the units, is part of the key.
    flags:    for the compiler, beyond those every library gets.
    """

    name: str
    units: tuple[Path, ...]
    folders: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()

    def key(self) -> str:
        """Of everything the built library depends on but the compiler: sources, flags, machine, C library."""
        digest = hashlib.sha256()
        for path in sorted(self._files()):
            digest.update(f"{path.name}:{path.stat().st_size}:".encode() + path.read_bytes())
        machine = (sys.platform, platform.machine(), *platform.libc_ver())
        # A file of flags lies among the sources: where that is must not matter.
        flags = [f"@{Path(flag[1:]).name}" if flag.startswith("@") else flag for flag in self.flags]
        digest.update("\0".join([*FLAGS, *flags, *machine]).encode())
        return f"{self.name}-{digest.hexdigest()[:20]}"

    def _files(self) -> Iterator[Path]:
        for folder in {unit.parent for unit in self.units} | set(self.folders):
            yield from (path for path in folder.rglob("*") if path.is_file())
