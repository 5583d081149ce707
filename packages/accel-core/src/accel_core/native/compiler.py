# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The C++ compiler of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from accel_core.errors import BuildFailed
from accel_core.native.source import Source

#: What makes a shared library; the rest is the source's own.
FLAGS = ("-std=c++17", "-fPIC", "-shared")
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
    units = [str(unit) for unit in source.units]
    headers = [f"-I{folder}" for folder in source.folders]
    command = [path, *FLAGS, *source.flags, *headers, "-o", str(target), *units]
    result = _run([*command, _OPENMP])
    if result.returncode and "openmp" in result.stderr.lower():
        result = _run(command)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise BuildFailed(
            what=f"{source.name} does not compile",
            found="; ".join(errors[:3]) or result.stderr.strip()[-300:] or f"status {result.returncode}",
            expected=f"a shared library from {len(units)} C++17 files",
            do=f"another compiler (CXX=…), or report it: {path} on {sys.platform}",
        )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
