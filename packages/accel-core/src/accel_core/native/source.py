# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The sources of a native library, and the cache key of its build."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Compiler flags of every library.
FLAGS = ("-std=c++17", "-fPIC")


@dataclass(frozen=True)
class Source:
    """C++ sources of one shared library.

    name:     name of the library (`accel_ops`).
    units:    files to compile.
    folders:  include folders; all files in them, and in the folders of the units, are part of the key.
    flags:    additional compiler flags.
    """

    name: str
    units: tuple[Path, ...]
    folders: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()

    @classmethod
    def of_package(cls, name: str, package: Path) -> Source:
        """Return the sources in a package's `csrc` and `include`, with the flags in `csrc/flags.txt`.

        package: folder of the package's modules. Without `csrc`, as in an editable install, the sources are those of
        the checkout: `csrc` beside `src`, and the headers that packages share.
        """
        csrc, headers = package / "csrc", package / "include"
        if not csrc.is_dir():
            csrc, headers = package.parents[1] / "csrc", package.parents[3] / "shared/csrc/include"
        units = tuple(sorted(csrc.glob("*.cpp")))
        return cls(name, units, folders=(csrc, headers), flags=(f"@{csrc / 'flags.txt'}",))

    def key(self) -> str:
        """Return a key of all that the library depends on, except the compiler: sources, flags, machine, C library."""
        digest = hashlib.sha256()
        for path in sorted(self._files()):
            content = Path(path).read_bytes()
            digest.update(f"{os.path.basename(path)}:{len(content)}:".encode() + content)
        machine = (sys.platform, platform.machine(), *platform.libc_ver())
        # A file of flags is among the sources; its path must not change the key.
        flags = [f"@{Path(flag[1:]).name}" if flag.startswith("@") else flag for flag in self.flags]
        digest.update("\0".join([*FLAGS, *flags, *machine]).encode())
        return f"{self.name}-{digest.hexdigest()[:20]}"

    def _files(self) -> Iterator[str]:
        """Paths as text: the key is computed before each first use, and a Path of each file takes twice the time."""
        for top in {unit.parent for unit in self.units} | set(self.folders):
            for folder, _, names in os.walk(top):
                yield from (os.path.join(folder, name) for name in names)
