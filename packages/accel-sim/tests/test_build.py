# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The device is compiled once, in any number of processes; errors leave nothing behind."""

import io
import itertools
import subprocess
import sys

import pytest

import accel_sim
from accel_core.errors import BuildFailed
from accel_sim import activation, build, simulation
from accel_sim.errors import NotSimulated
from shared.children import run

#: Writes what it was asked to make, and notes that it was called.
COMPILER = """#!/bin/sh
echo called >> "$LOG"
{first}
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of this test's own."""
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(cache, tmp_path, monkeypatch):
    """`compiler("exit 1")` puts a pretended compiler in place; its log has a line for each call."""
    log, numbers = tmp_path / "log", itertools.count()

    def put(first: str = "") -> None:
        program = tmp_path / f"c++{next(numbers)}"  # the last one may still run
        program.write_text(COMPILER.format(first=first), encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        monkeypatch.setenv("LOG", str(log))

    put()
    return put


def test_of_several_processes_one_builds(compiler, tmp_path):
    command = [sys.executable, "-c", "from accel_sim import build\nprint(build.library())"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    ended = [process.communicate(timeout=300) for process in started]
    assert len({found for found, _ in ended}) == 1
    assert (tmp_path / "log").read_text(encoding="utf-8").count("called") == len(build.UNITS) + 1
    assert sum("compiling the simulated device" in said for _, said in ended) == 1


def test_what_does_not_compile_says_why_and_is_tried_again(cache, compiler, capfd):
    compiler("echo 'unit.cpp:7: error: no such thing' >&2; exit 1")
    with pytest.raises(BuildFailed, match=r"\n  unit.cpp:7: error: no such thing"):
        build.library()
    assert [path for path in cache.rglob("*") if path.is_file() and path.name != ".lock"] == []
    assert "ready after" not in capfd.readouterr().err
    compiler()
    assert build.library().is_file()


def test_build_says_that_it_begins_and_ends(compiler, capfd):
    build.library()
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith("accel sim: compiling the simulated device for torch ")
    assert last.startswith("accel sim: ready after ")
    build.library()
    assert capfd.readouterr().err == ""


def test_build_goes_on_when_nobody_reads_its_progress(compiler, monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert build.library().is_file()


@pytest.mark.parametrize("arguments", [["--list"], ["--help"], ["npu"]])
def test_command_does_not_import_torch_itself(compiler, arguments):
    command = [sys.executable, "-X", "importtime", "-m", "accel_core.cli", "sim", *arguments]
    done = run(*command, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "accel_sim.build" in imported
    assert "torch" not in imported


def test_builder_that_is_killed_blocks_nobody(compiler, tmp_path):
    compiler("kill -9 $PPID; exit 1")
    program = "from accel_sim import build; build.library()"
    assert run(sys.executable, "-c", program).returncode == -9
    compiler()
    assert build.library().read_text(encoding="utf-8") == "made\n"


def test_error_without_a_compiler_says_what_to_install(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    done = run(sys.executable, "-m", "accel_core.cli", "sim", "npu", "--", sys.executable)
    assert done.returncode != 0
    assert done.stderr.startswith("the simulated device cannot be built: no C++ compiler 'c++' on PATH; ")
    assert "apt install g++" in done.stderr
    assert done.stderr.endswith("\nSee: accel explain ACC-403\n")


@pytest.mark.parametrize(
    ("key", "built"), [("cuda", {"cuda": "13.2"}), ("cuda", {"hip": "7.2"}), ("xpu", {"xpu": "20260100"})]
)
def test_device_of_torch_build_is_not_simulated(key, built, monkeypatch):
    version = {"__version__": "2.15.0+gpu", "cuda": None, **built}
    monkeypatch.setattr(build, "_torch", lambda: (None, version))
    monkeypatch.setattr(simulation, "_current", None)
    (name, release), *_ = built.items()
    for refused in (accel_sim.environment, activation.activate):
        with pytest.raises(NotSimulated, match="ACC-704") as raised:
            refused(key)
        assert f"built for {name} {release}" in str(raised.value)
        assert "install torch 2.15.0" in str(raised.value)
    build.check_torch("npu")


def test_torch_too_old_to_simulate_is_refused(monkeypatch):
    monkeypatch.setattr(build, "_torch", lambda: (None, {"__version__": "2.12.1+cpu"}))
    with pytest.raises(BuildFailed, match=r"torch>=2\.13"):
        accel_sim.environment("npu")
