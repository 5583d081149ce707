# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The sources of a native library, the cache key of its build, and the C++ compiler of this machine."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from accel_core import processes
from accel_core.errors import BuildFailed

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
        the checkout: `csrc` next to `src`, and the headers that packages share.
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


_OPENMP = "-fopenmp"


def find() -> list[str]:
    """Return the command of $CXX (`ccache g++ -m64`) or the first known one; empty if there is no compiler.

    Raises `BuildFailed` if CXX is not a command.
    """
    chosen = os.environ.get("CXX", "")
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise BuildFailed(
            f"no C++ compiler can be called: CXX={chosen}: {error}; expected a command as the shell reads it",
            do="correct CXX, or leave it unset",
        ) from error
    for name, *options in [words] if words else [["c++"], ["g++"], ["clang++"]]:
        if path := shutil.which(name):
            return [path, *options]
    return []


def identity(command: list[str]) -> str:
    """Return a hash that identifies the compiler, without starting it.

    It covers the words of the command, and path, size and date of each word that is a program (`ccache g++`).
    """
    facts = list(command)
    for program in filter(None, map(shutil.which, command)):
        real = Path(program).resolve()
        status = real.stat()
        facts.append(f"{real}:{status.st_size}:{status.st_mtime_ns}")
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:12]


def compile_library(source: Source, target: Path) -> None:
    """Compile and link into `target`, without OpenMP if it fails with it; raises `BuildFailed`."""
    command = find()
    if not command:
        raise BuildFailed(
            f"{source.name} cannot be built: no C++ compiler on PATH"
            + (f" (CXX={os.environ['CXX']})" if "CXX" in os.environ else ""),
            do="install g++ or clang++ with C++17 (Debian: apt install g++), or a wheel that carries the library",
        )
    result = compile_units(command, source, target, _OPENMP)
    # The errors of compilers without OpenMP differ: `unsupported option`, `cannot find -lomp`, `no omp.h`.
    if result.returncode and compile_units(command, source, target).returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise BuildFailed(
            f"{source.name} does not compile: "
            f"{'; '.join(errors[:3]) or result.stderr.strip()[-300:] or f'status {result.returncode}'}",
            do=f"another compiler (CXX=…), or report it: {shlex.join(command)} on {sys.platform}",
        )


def compile_units(command: list[str], source: Source, target: Path, *more: str) -> processes.Ended:
    """Return the linker's result, or that of the first unit that fails; units are compiled in parallel."""
    flags = [*command, *FLAGS, *more, *source.flags, *(f"-I{folder}" for folder in source.folders)]
    with (
        tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as work,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        objects = [str(Path(work) / f"{unit.stem}.o") for unit in source.units]
        commands = [
            [*flags, "-c", str(unit), "-o", made] for unit, made in zip(source.units, objects, strict=True)
        ]
        for result in pool.map(lambda each: run(each, Path(work)), commands):
            if result.returncode:
                return result
        link = [*command, *more, "-shared", "-o", str(target), *objects, *source.flags]
        return run(link, Path(work))


def run(command: list[str], work: Path) -> processes.Ended:
    """Run a compiler, whose temporary files are in the folder `work`: others may write the system's."""
    try:
        return processes.run(command, env={**os.environ, "TMPDIR": str(work)})
    except OSError as error:
        return processes.Ended(command, 127, "", str(error))
