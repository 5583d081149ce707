# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the simulated device for the torch that is installed, once, and keeps it in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from accel_core.native import Source, build, compiler
from accel_testkit.sim.errors import SimulatorBuildFailed

SOURCES = Path(__file__).parent / "csrc"
NAME = "accel_sim_native"
#: Reading torch's headers takes most of the time: the files are compiled as a few units, of which one
#: has the headers of the collectives and of Python.
UNITS = {
    "device": (
        "memory",
        "pinned",
        "alias",
        "guard",
        "random",
        "hooks",
        "observe",
        "tape",
        "rules",
        "capture",
        "graphs",
        "fallback",
        "kernels",
        "composites",
        "autocast",
    ),
    "order": ("order", "span", "race", "reuse", "host_ops"),
    "collectives": (
        "work",
        "launch",
        "deferred",
        "collectives",
        "collective_keys",
        "site",
        "race_report",
        "module",
    ),
}


def library() -> Path:
    """The shared library, built if it is not there yet; raises `SimulatorBuildFailed`, or `CacheUnusable`."""
    return build.library(_source(), _compile_library)


def _source() -> Source:
    # Where torch and Python are installed does not matter: environments of the same versions share a build.
    versions = (torch.__version__, str(torch.version.git_version), str(sys.implementation.cache_tag))
    units = tuple(SOURCES / f"{name}.cpp" for names in UNITS.values() for name in names)
    return Source(NAME, units, flags=(*_options(), *versions))


def _options() -> list[str]:
    abi = int(torch.compiled_with_cxx11_abi())
    standard = "c++20" if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12) else "c++17"
    return [
        f"-std={standard}", "-O1", "-fPIC", "-fvisibility=hidden", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO",
    ]  # fmt: skip


def _headers() -> list[str]:
    root = Path(torch.__file__).parent / "include"
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
            what="the simulated device can not be built",
            found=f"no C++ compiler {os.environ.get('CXX') or 'c++'!r} on PATH",
            expected="g++ or clang++ with C++20",
            do="install one (Debian: apt install g++) or set CXX; it is needed once for each torch version",
        )
    return command


def _compile_library(source: Source, target: Path) -> None:
    command = _compiler()
    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(lambda unit: _compile(command, target.parent, unit), UNITS))
    # torch's libraries are loaded already when this one is: it needs no path to them.
    libraries = Path(torch.__file__).parent / "lib"
    _run(
        [*command, "-shared", "-o", str(target), *map(str, objects), f"-L{libraries}",
         "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10"]
    )  # fmt: skip


def _compile(command: list[str], work: Path, unit: str) -> Path:
    source, target = work / f"unit_{unit}.cpp", work / f"{unit}.o"
    source.write_text("".join(f'#include "{name}.cpp"\n' for name in UNITS[unit]), encoding="utf-8")
    _run([*command, *_options(), *_headers(), "-c", str(source), "-o", str(target)])
    return target


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise SimulatorBuildFailed(
            what=f"the simulated device does not compile for torch {torch.__version__}",
            found="\n".join(errors[:5]) or result.stderr[-500:],
            expected="the headers of a torch that this release was written for (2.13)",
            do="install torch 2.13 or a newer accel-testkit; the command was: " + " ".join(command),
        )
