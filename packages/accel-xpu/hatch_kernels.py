# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts the kernels into the wheel: SPIR-V, which intel-sycl-rt's own compiler makes of the headers, and the shims.

A shim is a library over libsycl, for each release in pyproject.toml; g++ builds it. No Intel compiler and no GPU are
needed, but intel-sycl-rt and intel-opencl-rt of those releases, 400 MB each. ACCEL_XPU_RUNTIMES names the folders of
such installs (`pip install --prefix`); where ACCEL_XPU_IMAGES=1 demands kernels, as for a release, those that are not
named are downloaded. Without them the wheel has no kernels, and plain torch serves.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "accel_xpu/kernels/images"
#: 1: kernels have to be made, as for a release.
DEMAND = "ACCEL_XPU_IMAGES"
#: Folders of runtimes that are installed already.
RUNTIMES = "ACCEL_XPU_RUNTIMES"
#: No contraction of a * b + c: all devices compute the same bits. A launch may have more threads than an int counts.
#: A module a kernel: a driver compiles those that are used, which takes some 0.3 s each.
OPTIONS = (
    "-DACCEL_SYCL",
    "-O2",
    "-ffp-contract=off",
    "-fno-sycl-id-queries-fit-in-int",
    "-fsycl-device-code-split=per_kernel",
)
#: The name of a kernel in SPIR-V, after what the compiler puts before it.
_NAME = re.compile(rb"__sycl_kernel_(accel_\w+)\0")
#: The headers of libsycl want its own compiler, and warn of what they have deprecated themselves.
_SYCL = ("-std=c++17", "-w", "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING", "-DCL_TARGET_OPENCL_VERSION=300")
_SHIM = ("-O2", "-fPIC", "-shared", "-s", "-Wl,-z,now")
_LINK = ("-lsycl", "-Wl,--allow-shlib-undefined")


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before each build."""

    def dependencies(self) -> list[str]:
        """Return what an isolated build installs for this hook, which downloads two releases of the runtimes itself."""
        return ["pip"] if _demanded() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add headers to the sdist, kernels to the wheel; an editable install has none."""
        root = Path(self.root)
        headers = root / "include"
        if not headers.is_dir():
            headers = root.parents[1] / "shared/csrc/include"
        if self.target_name == "sdist":
            build_data["force_include"][str(headers)] = "include"
        elif version != "editable":
            made = root / "build" / "images"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
            for path in self._files(headers, made):
                build_data["force_include"][str(path)] = f"{FOLDER}/{path.name}"

    def _files(self, headers: Path, folder: Path) -> list[Path]:
        releases = [self.config["compiler"], *self.config["shims"]]
        found = {release: self._runtime(release) for release in dict.fromkeys(releases)}
        lacking = [release for release, runtime in found.items() if runtime is None]
        if lacking:
            lack = f"intel-sycl-rt and intel-opencl-rt {' and '.join(lacking)} are not in {RUNTIMES}"
            self.app.display_warning(f"accel-xpu: the wheel has no kernels, because {lack}")
            return []
        runtimes = {release: runtime for release, runtime in found.items() if runtime is not None}
        modules = self._modules(runtimes[self.config["compiler"]], headers, folder)
        shims = {}
        for release in self.config["shims"]:
            major = major_of(runtimes[release])
            shims[major] = self._shim(runtimes[release], folder / f"libaccel_sycl{major}.so")
        facts = {
            "compiler": self.config["compiler"],
            "options": list(OPTIONS),
            "modules": {path.stem: _entry(path) for path in modules},
            "shims": {major: _entry(path) for major, path in shims.items()},
        }
        listed = folder / "images.json"
        listed.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        return [*modules, *shims.values(), listed]

    def _runtime(self, release: str) -> Path | None:
        """Return the folder of an install of a release; None if there is none and none is demanded."""
        for named in filter(None, os.environ.get(RUNTIMES, "").split(os.pathsep)):
            if release_of(Path(named)) == release:
                return Path(named)
        if not _demanded():
            return None
        folder = Path(self.root) / "build" / "runtimes" / release
        if release_of(folder) != release:
            packages = [f"{name}=={release}" for name in ("intel-sycl-rt", "intel-opencl-rt")]
            self.app.display_info(f"accel-xpu: downloading {' and '.join(packages)}")
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--ignore-installed",
                "--no-warn-script-location",
            ]
            _run([*pip, "--prefix", str(folder), *packages], f"{DEMAND}=1 demands kernels, and pip fails")
        return folder

    def _modules(self, runtime: Path, headers: Path, folder: Path) -> list[Path]:
        work = folder.parent / "compiler"
        work.mkdir(exist_ok=True)
        program = work / "save_spirv"
        source = Path(self.root) / "csrc" / "save_spirv.cpp"
        _compile(runtime, ["-O1", str(source), "-o", str(program)], ["-lOpenCL"])
        command = [str(program), self.config["header"], str(folder), f"-I{headers}", *OPTIONS]
        _run(command, "no SPIR-V", environment(runtime, work))
        made = {}
        for path in folder.glob("*.spv"):
            (name,) = set(_NAME.findall(path.read_bytes()))
            made[name.decode()] = path
        return [path.rename(folder / f"{name}.spv") for name, path in sorted(made.items())]

    def _shim(self, runtime: Path, target: Path) -> Path:
        csrc = Path(self.root) / "csrc"
        exports = f"-Wl,--version-script={csrc / 'shim.map'}"
        # libsycl's headers keep the names of files: those of the build's folders would differ in each.
        names = [f"-ffile-prefix-map={folder}=." for folder in (csrc, runtime)]
        _compile(runtime, [*_SHIM, *names, exports, str(csrc / "shim.cpp"), "-o", str(target)])
        return target


def release_of(runtime: Path) -> str:
    """Return the release of both packages in a folder; empty if one is missing, or of another release."""
    found = {
        re.sub(r".*-([\d.]+)\.dist-info", r"\1", path.name)
        for name in ("intel_sycl_rt", "intel_opencl_rt")
        for path in [*runtime.glob(f"**/site-packages/{name}-*.dist-info"), Path("-none.dist-info")][:1]
    }
    return found.pop() if len(found) == 1 else ""


def major_of(runtime: Path) -> str:
    """Return the major version of a folder's libsycl."""
    found = [re.fullmatch(r"libsycl\.so\.(\d+)", path.name) for path in runtime.glob("lib/libsycl.so.*")]
    return next(match[1] for match in found if match)


def environment(runtime: Path, work: Path) -> dict[str, str]:
    """Return variables for a program over a runtime, whose device is the CPU. `work` gets the list of drivers."""
    drivers = work / "drivers"
    drivers.mkdir(parents=True, exist_ok=True)
    # The list that the package has itself names a folder of Intel's build.
    (drivers / "intel.icd").write_text(f"{runtime / 'lib/libintelocl.so'}\n", encoding="utf-8")
    return {
        "LD_LIBRARY_PATH": str(runtime / "lib"),
        "OCL_ICD_VENDORS": str(drivers),
        "ONEAPI_DEVICE_SELECTOR": "opencl:cpu",
    }


def _compile(runtime: Path, words: list[str], libraries: list[str] | None = None) -> None:
    compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    folders = ["-isystem", str(runtime / "include"), f"-L{runtime / 'lib'}"]
    _run([*compiler, *_SYCL, *folders, *words, *_LINK, *(libraries or [])], "a C++ compiler fails")


def _run(command: list[str], problem: str, added: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, **(added or {})},
        )
    except OSError as error:
        raise RuntimeError(f"accel-xpu: {problem}: {error}") from error
    if done.returncode:
        raise RuntimeError(
            f"accel-xpu: {problem} (status {done.returncode}): {(done.stderr or done.stdout)[-2000:]}"
        )


def _entry(path: Path) -> dict[str, str]:
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _demanded() -> bool:
    return os.environ.get(DEMAND) == "1"
