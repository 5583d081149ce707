# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the simulated device for the torch that is installed, once, and keeps it in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import platformdirs
import torch

from accel_testkit.sim import settings
from accel_testkit.sim.errors import CanNotBuild

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
    """The shared library, built if it is not there yet; raises `CanNotBuild`."""
    folder = cache_folder() / "sim" / _key()
    target = folder / f"{NAME}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with filelock.FileLock(folder / ".lock"):
        if not target.exists():
            _build(target)
    return target


def cache_folder() -> Path:
    """Where this project keeps what it builds; private to the user. Raises `CanNotBuild` when it is not."""
    folder = Path(settings.CACHE.get() or platformdirs.user_cache_dir("accel"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner = folder.stat().st_uid
    if hasattr(os, "getuid") and owner != os.getuid():
        raise CanNotBuild(
            what="the cache folder can not be trusted",
            found=f"{folder} belongs to user {owner}",
            expected=f"a folder of user {os.getuid()}",
            do=f"set {settings.CACHE.name} to a folder of your own",
        )
    return folder


def _flags() -> list[str]:
    root = Path(torch.__file__).parent
    abi = int(torch.compiled_with_cxx11_abi())
    standard = "c++20" if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12) else "c++17"
    return [
        f"-std={standard}", "-O1", "-fPIC", "-fvisibility=hidden", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", f"-I{SOURCES}", f"-I{root / 'include'}",
        f"-I{root / 'include/torch/csrc/api/include'}", f"-I{sysconfig.get_paths()['include']}",
    ]  # fmt: skip


def _key() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(" ".join([*_flags(), torch.__version__, str(torch.version.git_version)]).encode())
    return f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{digest.hexdigest()[:16]}"


def _compiler() -> str:
    name = os.environ.get("CXX", "c++")
    found = shutil.which(name.split()[0])
    if found is None:
        raise CanNotBuild(
            what="the simulated device can not be built",
            found=f"no C++ compiler {name!r} on PATH",
            expected="g++ or clang++ with C++20",
            do="install one (Debian: apt install g++) or set CXX; it is needed once for each torch version",
        )
    return name


def _build(target: Path) -> None:
    compiler = _compiler()
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        work = Path(folder)
        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(lambda unit: _compile(compiler, work, unit), UNITS))
        libraries = Path(torch.__file__).parent / "lib"
        built = work / target.name
        _run(
            [*compiler.split(), "-shared", "-o", str(built), *map(str, objects), f"-L{libraries}",
             "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10", f"-Wl,-rpath,{libraries}"]
        )  # fmt: skip
        # Published in one step: a builder that is killed leaves nothing behind that others would load.
        built.replace(target)


def _compile(compiler: str, work: Path, unit: str) -> Path:
    source, target = work / f"unit_{unit}.cpp", work / f"{unit}.o"
    source.write_text("".join(f'#include "{name}.cpp"\n' for name in UNITS[unit]), encoding="utf-8")
    _run([*compiler.split(), *_flags(), "-c", str(source), "-o", str(target)])
    return target


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise CanNotBuild(
            what=f"the simulated device does not compile for torch {torch.__version__}",
            found="\n".join(errors[:5]) or result.stderr[-500:],
            expected="the headers of a torch that this release was written for (2.13)",
            do="install torch 2.13 or a newer accel-testkit; the command was: " + " ".join(command),
        )
