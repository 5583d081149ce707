# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Engines in a C program whose threads submit, pause and cancel at once, under the compiler's sanitizers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from accel_ops import library

PROGRAM = Path(__file__).parents[1] / "driver" / "io.c"
NO_ENGINE = 2  # the program's status


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("not run: package g++")
    folder = tmp_path_factory.mktemp("sanitized")
    sources = library.source()
    headers = [f"-I{each}" for each in sources.folders]
    units = [str(unit) for unit in sources.units if unit.name.startswith("io_")]
    sanitizer = ["-g", f"-fsanitize={request.param}", "-fno-sanitize-recover=all"]
    compile_program = ["gcc", "-std=c11", "-Wall", "-Werror", "-O1", *sanitizer, *headers, "-c", str(PROGRAM)]
    subprocess.run([*compile_program, "-o", str(folder / "io.o")], check=True)
    link = ["g++", "-std=c++17", *sources.flags, "-O1", *sanitizer, *headers, *units, str(folder / "io.o")]
    subprocess.run([*link, "-o", str(folder / "io"), "-lpthread"], check=True)
    return folder / "io"


@pytest.mark.slow
@pytest.mark.parametrize("faults", [0, 100])
@pytest.mark.parametrize("engine", [1, 2], ids=["uring", "threads"])
def test_threads_that_share_an_engine_do_not_race(
    program: Path, tmp_path: Path, engine: int, faults: int
) -> None:
    command = [program, tmp_path / "file", str(engine), str(faults)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if ended.returncode == NO_ENGINE:
        pytest.skip("this process has no io_uring")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith(" 0 differ\n")
