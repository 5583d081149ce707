# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels and engines in C programs without torch: the committed bits on every instruction set, and no race."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from accel_ops.host import library
from shared.children import run

HERE = Path(__file__).parent / "driver"
#: Status of both programs, where the machine lacks the level or the engine.
NOT_HERE = 2
#: Of what driver.c prints: the bits of all results.
BITS = "572830be3f3464281cd8f61cb0f1d1e01b2eaa41be8fa9488b267a8ffe291cad"


def find_program(program: str, package: str) -> str:
    """Return the program's path. Where its package is missing, the test fails in CI and is skipped elsewhere."""
    path = shutil.which(program)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not run: package {package}")
    return str(path)


def build(folder: Path, prefix: str = "", *flags: str, program: str = "driver", units: str = "") -> Path:
    """Build a program with the units whose names begin so."""
    sources = library.source()
    package = f"g++-{prefix.strip('-')}" if prefix else "g++"
    headers = [f"-I{each}" for each in sources.folders]
    chosen = [
        str(each) for each in sources.units if each.name.startswith(units) and each.name != "python.cpp"
    ]
    made, compiled = folder / program, folder / f"{program}.o"
    compile_program = [
        find_program(f"{prefix}gcc", package), "-std=c11", "-Wall", "-Werror", "-O1", *flags, *headers,
        "-c", str(HERE / f"{program}.c"), "-o", str(compiled),
    ]  # fmt: skip
    link = [
        find_program(f"{prefix}g++", package), "-std=c++17", *sources.flags, "-fopenmp", *flags, *headers, *chosen,
        str(compiled), "-o", str(made),
    ]  # fmt: skip
    subprocess.run(compile_program, check=True)
    subprocess.run(link, check=True, capture_output=True)
    return made


def outcome(*command: object) -> tuple[int, str]:
    """The status of a run of driver.c, and the hash of what it prints."""
    ended = run(*command)
    return ended.returncode, hashlib.sha256(ended.stdout.encode()).hexdigest()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize("level", ["1", "3", "4"])
def test_the_bits_are_the_committed_ones_on_this_machine(driver, level):
    status, bits = outcome(driver, level)
    if status == NOT_HERE:
        pytest.skip(f"this machine is below x86-64-v{level}")
    assert (status, bits) == (0, BITS)


@pytest.mark.parametrize("cpu", ["qemu64", "Nehalem"], ids=["x86-64-v1", "x86-64-v2"])
def test_an_older_cpu_runs_no_illegal_instruction_and_gives_the_same_bits(driver, cpu):
    emulator = find_program("qemu-x86_64", "qemu-user")
    assert outcome(emulator, "-cpu", cpu, driver) == (0, BITS)


@pytest.fixture(scope="module")
def arm_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("arm"), "aarch64-linux-gnu-", "-static")


@pytest.mark.parametrize(
    ("cpu", "levels"),
    [
        ("cortex-a72", {"0": True, "5": False}),
        *(
            (f"max,sve-default-vector-length={bits // 8}", {"0": True, "5": True, "4": False})
            for bits in (128, 256, 512)
        ),
    ],
    ids=["NEON", "SVE of 128 bits", "SVE of 256 bits", "SVE of 512 bits"],
)
@pytest.mark.slow
def test_aarch64_gives_the_same_bits(arm_driver, cpu, levels):
    emulated = [find_program("qemu-aarch64", "qemu-user"), "-cpu", cpu, arm_driver]
    assert outcome(*emulated) == (0, BITS)
    for level, is_there in levels.items():
        status, bits = outcome(*emulated, level)
        assert status == (0 if is_there else NOT_HERE)
        assert (bits == BITS) == is_there


def test_the_loops_for_sve_are_made_of_its_vectors(arm_driver):
    program = find_program("aarch64-linux-gnu-objdump", "binutils-aarch64-linux-gnu")
    functions = run(program, "-d", "-C", arm_driver, check=True).stdout.split("\n\n")
    steps = [text for text in functions if "accel_ops::sve::" in text.partition("\n")[0]]
    vectors = [len(re.findall(r"\bz\d+\.[sd]\b", text)) for text in steps]
    assert len(steps) >= 15
    assert all(vectors)


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = "-O1", "-g", f"-fsanitize={request.param}", "-fno-sanitize-recover=all", "-pthread"
    return build(tmp_path_factory.mktemp("sanitized"), "", *flags, program="io", units="io_")


@pytest.mark.slow
@pytest.mark.parametrize("faults", [0, 100])
@pytest.mark.parametrize("engine", [1, 2], ids=["uring", "threads"])
def test_threads_that_share_an_engine_do_not_race(sanitized, tmp_path, engine, faults):
    ended = run(sanitized, tmp_path / "file", engine, faults)
    if ended.returncode == NOT_HERE:
        pytest.skip("this process has no io_uring")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith(" 0 differ\n")
