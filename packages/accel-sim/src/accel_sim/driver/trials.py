# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ways to try kernels harder: other numbers of threads, planted faults, the compiler's sanitizers."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accel_core.native import compiler
from accel_core.processes import Ended, run
from accel_sim import shared
from accel_sim.driver import HostKernels

HEADERS = shared.folder("csrc") / "include"
#: Flags of the compiler for address and undefined behaviour.
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def with_any_threads(kernels: HostKernels) -> Callable[[str, int, int, tuple[Any, ...]], None]:
    """Start kernels with other numbers of threads than the launcher's, which must not matter."""
    draw = random.Random("threads")
    return lambda name, blocks, _threads, arguments: kernels.launch(
        name, blocks, draw.choice([32, 64, 96, 128]), arguments
    )


def planted(folder: Path, right: str, wrong: str) -> None:
    """Write headers with one text replaced, in the one file that has it."""
    shutil.copytree(HEADERS, folder)
    holders = [path for path in folder.rglob("*.h") if right in path.read_text("utf-8")]
    texts = [path.read_text("utf-8") for path in holders]
    if [text.count(right) for text in texts] != [1]:
        raise ValueError(
            f"{right!r} is {sum(text.count(right) for text in texts)} times in the headers, not once"
        )
    holders[0].write_text(texts[0].replace(right, wrong), "utf-8")


def run_sanitized(program: str, cache: Path) -> Ended | None:
    """Run a program of Python that loads `SANITIZED` libraries; return None if the compiler has none.

    cache: folder for its native libraries.
    """
    environment = sanitized_environment(cache)
    if environment is None:
        return None
    # Without the present folder, in which another user may have put modules.
    command = [sys.executable, "-c", f"import sys; sys.path = [p for p in sys.path if p]\n{program}"]
    return run(command, env=environment)


def sanitized_environment(cache: Path | None = None) -> dict[str, str] | None:
    """Return the environment of a child that loads `SANITIZED` libraries from a cache; None without such libraries."""
    command = compiler.find()
    found = [run([*command, f"-print-file-name={name}"]) for name in ("libasan.so", "libubsan.so")]
    for result in found:
        result.check_returncode()
    libraries = [result.stdout.strip() for result in found]
    if not all(Path(path).is_file() for path in libraries):
        return None
    return {
        **os.environ, **({"ACCEL_CACHE_DIR": str(cache)} if cache else {}), "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
