# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Other users of this machine, as which a test run by root takes steps, and what one of them attacks.

A user needs no account, only a number.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from accel_core.errors import CacheUnusable
from accel_core.native import Source, build, compiler
from shared.children import as_user

#: The one whose process loads a library, and the one who wants code of his own in it.
VICTIM, ATTACKER = 65534, 54321
#: Its constructor runs when it is loaded, before any of its functions is looked up.
_EVIL = """#include <fcntl.h>
__attribute__((constructor)) static void run() { open("MARK", O_CREAT | O_WRONLY, 0666); }
extern "C" int answer() { return 666; }
"""


#: A program that builds the library of the sources in a folder, and prints its path.
BUILD = """
import sys
from pathlib import Path
from accel_core.native import Source, build
print(build.library(Source("tiny", units=(Path(sys.argv[1]) / "answer.cpp",), folders=(Path(sys.argv[1]),))))
"""


def answer(path: Path) -> int:
    """What the library says; loads it."""
    return int(ctypes.CDLL(str(path)).answer())


def folder(path: Path, owner: int, mode: int) -> Path:
    """Make a folder of that user, with exactly these permissions."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


@dataclass(frozen=True)
class Scene:
    """A cache of the victim's, and what the attacker has at hand."""

    root: Path
    source: Source
    evil: bytes
    mark: Path

    @property
    def cache(self) -> Path:
        return self.root / "home" / "cache"

    @property
    def home(self) -> Path:
        """The folder of the library."""
        return self.cache / self.source.key()

    def name(self, content: bytes) -> str:
        """What a whole library with this content is called."""
        stem = f"{self.source.name}-{compiler.identity(compiler.find())}"
        return f"{stem}-{hashlib.sha256(content).hexdigest()[:32]}.so"

    def plant(self, where: Path, owner: int = ATTACKER, mode: int = 0o755) -> Path:
        path = where / self.name(self.evil)
        path.write_bytes(self.evil)
        path.chmod(mode)
        os.chown(path, owner, owner)
        return path

    def load(self, user: int = VICTIM) -> str:
        """Let a user build and load, as a process of his does."""

        def attempt() -> str:
            try:
                path = build.library(self.source)
                return str(build.load(path, ctypes.CDLL).answer())
            except CacheUnusable as error:
                return str(error)

        return as_user(user, attempt)


def scene(source: Source, root: Path) -> Scene:
    """Make the folders of both, and compile the attacker's library."""
    root.chmod(0o755)
    marks = folder(root / "marks", 0, 0o777)
    csrc = shutil.copytree(source.folders[0], root / "csrc")
    (root / "evil.cpp").write_text(_EVIL.replace("MARK", str(marks / "mark")))
    subprocess.run(["c++", "-shared", "-fPIC", "-o", root / "evil.so", root / "evil.cpp"], check=True)
    folder(root / "home", VICTIM, 0o755)
    own = Source(source.name, (csrc / "answer.cpp",), (csrc,))
    return Scene(root, own, (root / "evil.so").read_bytes(), marks / "mark")
