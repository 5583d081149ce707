# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile the simulated device for the installed torch, once, and keep the library in the user's cache.

This module does not import torch: `accel sim` takes its version and headers from the installed files.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from accel_core.native import Source, build, compiler
from accel_sim.build_progress import BuildProgress
from accel_sim.errors import SimulatorBuildFailed

SOURCES = Path(__file__).parent / "csrc"
NAME = "accel_sim_native"
#: The folders of csrc, compiled as one file a unit. torch's headers take most of the time: the first unit has those of
#: Python, of the collectives and all of ATen's, the second does without them and takes about as long.
UNITS = {
    "collectives and Python": ("distributed", "python", "autocast"),
    "device and operators": ("runtime", "aten", "graphs", "order"),
}


def library() -> Path:
    """Return the shared library, built if it is not there yet. Raises `SimulatorBuildFailed` or `CacheUnusable`."""
    with BuildProgress("accel sim") as progress:
        return build.library(_source(), lambda _source, target: _compile_library(target, progress))


@cache
def _torch() -> tuple[Path, dict[str, Any]]:
    """Return torch's folder, and the names of its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SimulatorBuildFailed(
            what="the simulated device cannot be built",
            found="no torch in this environment",
            expected="torch 2.13, whose headers the device is compiled with",
            do="pip install torch==2.13.0",
        )
    folder = Path(spec.origin).parent
    version = importlib.util.spec_from_file_location("accel_sim_torch_version", folder / "version.py")
    assert version is not None
    assert version.loader is not None
    module = importlib.util.module_from_spec(version)
    version.loader.exec_module(module)
    return folder, vars(module)


def _source() -> Source:
    # Where torch and Python are installed does not matter: environments of the same versions share a build.
    version = _torch()[1]
    versions = (str(version["__version__"]), str(version["git_version"]), str(sys.implementation.cache_tag))
    units = tuple(path for folders in UNITS.values() for path in _files(folders))
    return Source(NAME, units, folders=(SOURCES,), flags=(*_options(), *versions))


def _files(folders: tuple[str, ...]) -> list[Path]:
    return [path for folder in folders for path in sorted((SOURCES / folder).glob("*.cpp"))]


def _options() -> list[str]:
    release = tuple(map(int, str(_torch()[1]["__version__"]).split(".")[:2]))
    standard = "c++20" if release >= (2, 12) else "c++17"
    # AT_PER_OPERATOR_HEADERS: torch's headers include those of single operators in place of all of them.
    return [
        f"-std={standard}", "-O1", "-fPIC", "-fvisibility=hidden", "-w",
        "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", "-DAT_PER_OPERATOR_HEADERS",
    ]  # fmt: skip


def _headers() -> list[str]:
    root = _torch()[0] / "include"
    return [
        f"-I{SOURCES}",
        f"-I{root}",
        f"-I{root / 'torch/csrc/api/include'}",
        f"-I{sysconfig.get_paths()['include']}",
    ]


def _compiler() -> list[str]:
    command = compiler.find()
    if not command:
        raise SimulatorBuildFailed(
            what="the simulated device cannot be built",
            found=f"no C++ compiler {os.environ.get('CXX') or 'c++'!r} on PATH",
            expected="g++ or clang++ with C++20",
            do="install one (Debian: apt install g++) or set CXX; it is needed once for each torch version",
        )
    return command


def _compile_library(target: Path, progress: BuildProgress) -> None:
    command = _compiler()
    version = _torch()[1]["__version__"]
    progress.begin(
        len(UNITS),
        f"compiling the simulated device for torch {version}, about half a minute; later runs find it",
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda unit: _compile(command, target.parent, unit, progress), UNITS))
    # torch's libraries are loaded already when this one is: it needs no path to them.
    libraries = _torch()[0] / "lib"
    _run(
        [*command, "-shared", "-o", str(target), *map(str, objects), f"-L{libraries}",
         "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10"],
        target.parent,
    )  # fmt: skip


def _compile(command: list[str], work: Path, unit: str, progress: BuildProgress) -> Path:
    stem = unit.replace(" ", "_")
    source, target = work / f"{stem}.cpp", work / f"{stem}.o"
    files = [path.relative_to(SOURCES).as_posix() for path in _files(UNITS[unit])]
    source.write_text("".join(f'#include "{file}"\n' for file in files), encoding="utf-8")
    progress.part(unit)
    _run([*command, *_options(), *_headers(), "-c", str(source), "-o", str(target)], work)
    progress.done(unit)
    return target


def _run(command: list[str], work: Path) -> None:
    result = compiler.run(command, work)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise SimulatorBuildFailed(
            what=f"the simulated device does not compile for torch {_torch()[1]['__version__']}",
            found="\n".join(errors[:5]) or result.stderr[-500:],
            expected="the headers of a torch that this release was written for (2.13)",
            do="install torch 2.13 or a newer accel-sim; the command was: " + " ".join(command),
        )
