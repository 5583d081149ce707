# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the package's library into the wheel, which then works with every Python and torch of its platform.

With ACCEL_NO_NATIVE=1, or where the library does not compile, the wheel has none (py3-none-any): it is then compiled
from the packaged source when first used. The build backend cannot import accel_core, so this file repeats the compiler
options of accel_core.native.compiler. accel-cpu has the same hook. A wheel is built from its own sdist alone, which
therefore has a copy of this file. The name of the library is in pyproject.toml.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add headers, sources and the library. An editable install compiles from the checkout when first used."""
        root, package = Path(self.root), self.metadata.name.replace("-", "_")
        headers = root / "include"
        if not headers.is_dir():
            headers = root.parents[1] / "shared/csrc/include"
        if self.target_name == "sdist":
            build_data["force_include"][str(headers)] = "include"
            if Path(__file__).parent != root:
                build_data["force_include"][__file__] = "library_hook.py"
        elif version != "editable":
            build_data["force_include"][str(root / "csrc")] = f"{package}/csrc"
            build_data["force_include"][str(headers)] = f"{package}/include"
            library = self._compiled(root / "csrc", headers)
            if library:
                build_data["force_include"][str(library)] = f"{package}/lib/{library.name}"
                build_data["pure_python"] = False
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["tag"] = f"py3-none-{platform}"

    def _compiled(self, csrc: Path, headers: Path) -> Path | None:
        if os.environ.get("ACCEL_NO_NATIVE") == "1":
            return None
        target = Path(self.root) / "build" / f"lib{self.config['library']}.so"
        target.parent.mkdir(parents=True, exist_ok=True)
        units = [str(unit) for unit in sorted(csrc.glob("*.cpp"))]
        folders = [
            csrc,
            headers,
            sysconfig.get_path("include"),
        ]  # the last one is Python's, for extension modules
        flags = [
            "-std=c++17",
            "-fPIC",
            "-shared",
            f"@{csrc / 'flags.txt'}",
            *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []),  # Python's functions
            *(f"-I{folder}" for folder in folders),
        ]
        problems = []
        for openmp in (["-fopenmp"], []):  # Apple's clang has no OpenMP
            try:
                compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
                command = [*compiler, *flags, *openmp, "-o", str(target), *units]
                self._run(command)
                return target
            except subprocess.CalledProcessError as error:
                problems.append(error.stderr.strip() or str(error))
            except (OSError, ValueError) as error:
                problems.append(str(error))
        self.app.display_warning(
            f"{self.metadata.name}: the wheel has no library, because it does not compile: {problems[0]}"
        )
        return None

    def _run(self, command: list[str]) -> None:
        """Run the compiler. pip shows `Preparing metadata` and turns its sign of life only with a line of output."""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as compiler:
            errors, seconds = None, 0
            while errors is None:
                self.app.display_info(f"{self.metadata.name}: compiling its library, {seconds} s")
                try:
                    _, errors = compiler.communicate(timeout=1)
                except subprocess.TimeoutExpired:
                    seconds += 1
        if compiler.returncode:
            raise subprocess.CalledProcessError(compiler.returncode, command, stderr=errors)
