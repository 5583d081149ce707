# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The C++ compiler of this machine."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from accel_core.errors import BuildFailed
from accel_core.native.source import FLAGS, Source

_OPENMP = "-fopenmp"


def find() -> list[str]:
    """The command of $CXX (`ccache g++ -m64`) or the first usual one; empty where there is no compiler.

    Raises `BuildFailed` for a CXX that is no command.
    """
    chosen = os.environ.get("CXX", "")
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise BuildFailed(
            what="no C++ compiler can be called",
            found=f"CXX={chosen}: {error}",
            expected="a command as the shell reads it",
            do="correct CXX, or leave it unset",
        ) from error
    for name, *options in [words] if words else [["c++"], ["g++"], ["clang++"]]:
        if path := shutil.which(name):
            return [path, *options]
    return []


def identity(command: list[str]) -> str:
    """A hash that tells one compiler from the next without starting it.

    Of the words and, as `ccache g++` is two programs, of the real path, size and date of each that is one.
    """
    facts = list(command)
    for program in filter(None, map(shutil.which, command)):
        real = Path(program).resolve()
        status = real.stat()
        facts.append(f"{real}:{status.st_size}:{status.st_mtime_ns}")
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:12]


def compile_library(source: Source, target: Path) -> None:
    """Compile and link into `target`, without OpenMP where that fails with it; raises `BuildFailed`."""
    command = find()
    if not command:
        raise BuildFailed(
            what=f"{source.name} cannot be built",
            found="no C++ compiler on PATH" + (f" (CXX={os.environ['CXX']})" if "CXX" in os.environ else ""),
            expected="g++ or clang++ with C++17",
            do="install one (Debian: apt install g++), or a wheel that carries the library",
        )
    result = _built(command, source, target, (_OPENMP,))
    # What a compiler without OpenMP says differs: `unsupported option`, `cannot find -lomp`, `no omp.h`.
    if result.returncode and _built(command, source, target, ()).returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise BuildFailed(
            what=f"{source.name} does not compile",
            found="; ".join(errors[:3]) or result.stderr.strip()[-300:] or f"status {result.returncode}",
            expected=f"a shared library from {len(source.units)} C++17 files",
            do=f"another compiler (CXX=…), or report it: {shlex.join(command)} on {sys.platform}",
        )


def _built(
    command: list[str], source: Source, target: Path, openmp: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """The linker's result, or the first failed unit's; units are compiled side by side."""
    flags = [*command, *FLAGS, *openmp, *source.flags, *(f"-I{folder}" for folder in source.folders)]
    with (
        tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as work,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        objects = [str(Path(work) / f"{unit.stem}.o") for unit in source.units]
        commands = [
            [*flags, "-c", str(unit), "-o", made] for unit, made in zip(source.units, objects, strict=True)
        ]
        for result in pool.map(_run, commands):
            if result.returncode:
                return result
        return _run([*command, *openmp, "-shared", "-o", str(target), *objects, *source.flags])


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
