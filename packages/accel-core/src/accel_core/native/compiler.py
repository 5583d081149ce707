# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The C++ compiler of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from accel_core.errors import BuildFailed
from accel_core.native.source import Source

#: What every library is compiled with; the rest is the source's own.
FLAGS = ("-std=c++17", "-fPIC")
_OPENMP = "-fopenmp"


def find() -> str | None:
    """Path of $CXX or of the first usual name; None where there is no compiler."""
    chosen = os.environ.get("CXX")
    names = [shlex.split(chosen)[0]] if chosen and shlex.split(chosen) else ["c++", "g++", "clang++"]
    return next((path for path in map(shutil.which, names) if path), None)


def identity(path: str) -> str:
    """What tells one compiler from the next without starting it: its real path, size and date."""
    real = Path(path).resolve()
    status = real.stat()
    return f"{real}:{status.st_size}:{status.st_mtime_ns}"


def compile_library(source: Source, target: Path) -> None:
    """Compile and link into `target`, without OpenMP where the compiler has none; raises `BuildFailed`."""
    path = find()
    if path is None:
        raise BuildFailed(
            what=f"{source.name} can not be built",
            found="no C++ compiler on PATH" + (f" (CXX={os.environ['CXX']})" if "CXX" in os.environ else ""),
            expected="g++ or clang++ with C++17",
            do="install one (Debian: apt install g++), or a wheel that carries the library",
        )
    result = _built(path, source, target, (_OPENMP,))
    if result.returncode and "openmp" in result.stderr.lower():
        result = _built(path, source, target, ())
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise BuildFailed(
            what=f"{source.name} does not compile",
            found="; ".join(errors[:3]) or result.stderr.strip()[-300:] or f"status {result.returncode}",
            expected=f"a shared library from {len(source.units)} C++17 files",
            do=f"another compiler (CXX=…), or report it: {path} on {sys.platform}",
        )


def _built(
    path: str, source: Source, target: Path, openmp: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """The linker's result, or the first failed unit's; units are compiled side by side."""
    flags = [path, *FLAGS, *openmp, *source.flags, *(f"-I{folder}" for folder in source.folders)]
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
        return _run([path, *openmp, "-shared", "-o", str(target), *objects, *source.flags])


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
