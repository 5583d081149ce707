# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile the simulated device for the installed torch, once, and keep the library in the user's cache.

This module does not import torch: `accel sim` takes its version and headers from the installed files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from accel_core import env
from accel_core.errors import BuildFailed
from accel_core.native import Source, build, compiler
from accel_core.vendor import in_range
from accel_sim.errors import NotSimulated

SOURCES = Path(__file__).parent / "csrc"


@dataclass(frozen=True)
class Extension:
    """A Python module in C++ that is compiled for the installed torch.

    title: its name in messages; command: who compiles it. sources: its folder. units: files that are compiled as one.
    """

    name: str
    title: str
    command: str
    sources: Path
    units: Mapping[str, Sequence[str]]

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return where its headers are: its own, and the device's."""
        return tuple(dict.fromkeys((self.sources, SOURCES)))


_WITH_PYTHON = ("agreement", "autocast", "collectives", "module", "places")
#: The files of csrc, compiled as one file a unit. torch's headers take most of the time: the first unit has those of
#: Python, of the collectives and all of ATen's, the second does without them and takes about as long.
UNITS = {
    "collectives and Python": _WITH_PYTHON,
    "device and operators": tuple(sorted({path.stem for path in SOURCES.glob("*.cpp")} - {*_WITH_PYTHON})),
}
DEVICE = Extension("accel_sim_native", "the simulated device", "accel sim", SOURCES, UNITS)

#: The lowest torch that the device compiles for. accel-testkit imports this package with older ones, too.
OLDEST = "2.13"
#: Fields of torch.version that say that torch has its own kernels for a device type.
_OWN_KERNELS = {"cuda": ("cuda", "hip"), "xpu": ("xpu",)}


def check_torch(key: str) -> None:
    """Raise `BuildFailed` for too old a torch, `NotSimulated` for one that is built for this device type.

    Simulated kernels are a fallback of the type's dispatch key: torch's own would run, without a driver.
    """
    version = _torch()[1]
    if not in_range(str(version["__version__"]), f">={OLDEST}"):
        raise BuildFailed(
            f"the simulated device does not compile for torch {version['__version__']}: an older torch "
            "than this release was written for",
            do=f"pip install 'torch>={OLDEST}'",
        )
    built = " and ".join(f"{name} {version[name]}" for name in _OWN_KERNELS.get(key, ()) if version.get(name))
    if built:
        base = str(version["__version__"]).partition("+")[0]
        raise NotSimulated(
            f"{key} cannot be simulated with this build of torch: torch {version['__version__']}, built "
            f"for {built}: its kernels for {key} need a driver",
            do=f"install torch {base} from PyTorch's index of CPU builds, or simulate another device",
        )


def library(extension: Extension = DEVICE) -> Path:
    """Return the library: the wheel's, or one that is built if it is not there yet.

    Raises `BuildFailed` or `CacheUnusable`.
    """
    return packaged(extension) or compiled(extension)


def packaged(extension: Extension) -> Path | None:
    """Return the library that the wheel has for the installed torch's minor release; None where it has none."""
    path = _place(extension, extension.sources.with_name("prebuilt"))  # as hatch_build.py puts it
    return path if path.is_file() else None


def _place(extension: Extension, folder: Path) -> Path:
    minor = ".".join(str(_torch()[1]["__version__"]).split(".")[:2])
    return folder / f"torch-{minor}-{sys.implementation.cache_tag}" / f"{extension.name}.so"


def put(extension: Extension, folder: Path) -> None:
    """Add a library to the folder from which hatch_build.py takes those of the wheel."""
    place = _place(extension, folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(compiled(extension), place)


def compiled(extension: Extension) -> Path:
    """Return the library that is built here. Raises as `library` does."""
    return build.library(_source(extension), lambda _source, target: _compile_library(extension, target))


@cache
def _torch() -> tuple[Path, dict[str, Any]]:
    """Return torch's folder, and the names of its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildFailed(
            "the simulated device cannot be built: no torch in this environment",
            do=f"pip install 'torch>={OLDEST}'",
        )
    folder = Path(spec.origin).parent
    version = importlib.util.spec_from_file_location("accel_sim_torch_version", folder / "version.py")
    assert version is not None
    assert version.loader is not None
    module = importlib.util.module_from_spec(version)
    version.loader.exec_module(module)
    return folder, vars(module)


def _source(extension: Extension) -> Source:
    # Where torch and Python are installed does not matter: environments of the same versions share a build.
    version = _torch()[1]
    versions = (str(version["__version__"]), str(version["git_version"]), str(sys.implementation.cache_tag))
    files = tuple(extension.sources / f"{name}.cpp" for names in extension.units.values() for name in names)
    return Source(extension.name, files, folders=extension.folders, flags=(*_OPTIONS, *versions))


#: AT_PER_OPERATOR_HEADERS: torch's headers include those of single operators in place of all of them.
_OPTIONS = (
    "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-w",
    "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", "-DAT_PER_OPERATOR_HEADERS",
)  # fmt: skip


def _compiler() -> list[str]:
    command = compiler.find()
    if not command:
        raise BuildFailed(
            f"the simulated device cannot be built: no C++ compiler {os.environ.get('CXX') or 'c++'!r} on "
            "PATH; expected g++ or clang++ with C++20",
            do="install one (Debian: apt install g++) or set CXX; it is needed once for each torch version",
        )
    return command


def _compile_library(extension: Extension, target: Path) -> None:
    command, started = _compiler(), time.monotonic()
    folder, version = _torch()
    _say(
        extension,
        f"compiling {extension.title} for torch {version['__version__']}, about half a minute; later runs find it",
    )
    units = tuple(target.with_name(f"{name.replace(' ', '_')}.cpp") for name in extension.units)
    for unit, names in zip(units, extension.units.values(), strict=True):
        unit.write_text("".join(f'#include "{name}.cpp"\n' for name in names), encoding="utf-8")
    headers = (
        folder / "include",
        folder / "include/torch/csrc/api/include",
        Path(sysconfig.get_paths()["include"]),
    )
    # torch's libraries are loaded already when this one is: it needs no path to them.
    libraries = (f"-L{folder / 'lib'}", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10")
    source = Source(extension.name, units, (*extension.folders, *headers), (*_OPTIONS, *libraries))
    result = compiler.compile_units(command, source, target)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        raise BuildFailed(
            f"the simulated device does not compile for torch {version['__version__']}",
            do="repair the cause below, or install another torch; the command was: " + " ".join(result.args),
            details="\n".join(errors[:5]) or result.stderr[-500:],
        )
    _say(extension, f"ready after {time.monotonic() - started:.0f} s")


def _say(extension: Extension, text: str) -> None:
    """Write a line to standard error, unless this is not the first rank of the machine, or nobody reads it."""
    if env.is_local_rank_zero():
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{extension.command}: {text}\n")
            sys.stderr.flush()


# python -m accel_sim.build FOLDER: a library for the wheel, as hatch_build.py wants it.
if __name__ == "__main__":
    put(DEVICE, Path(sys.argv[1]))
