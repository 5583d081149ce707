# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them, and odd ones, run after the port as before: on the CPU, and on simulated devices.

`python -m packages.accel-port.tests.test_programs` rewrites programs/expected.diff; review what it changed.
"""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from accel_port.command import main
from accel_port.porting import port
from accel_port.project import port_files

from .conftest import HERE, ODD_PROGRAMS, TARGETS, ported_once

FOLDER = HERE / "programs"
#: What the port changes in each of them, without context.
EXPECTED = FOLDER / "expected.diff"
PROGRAMS = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".ipynb"))
#: Those that need a device, or ranks, before the port.
NEED_A_DEVICE = {"current_device_parallel.py", "needs_gpu.py", "prefetcher.py"}
#: Ranks on devices; of the others 1.
RANKS = {"current_device_parallel.py": 2}
DEVICES = ("cuda", "hpu", "mlu", "mps", "npu", "sdaa", "xpu")
#: What a device cannot do that a program needs, by program and device.
CANNOT = {
    ("ddp_spawn.py", "mps"): "gloo cannot average gradients on mps",
    ("prefetcher.py", "mps"): "mps has no streams",
}


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes a copy of the programs that is ported for a target."""

    @cache
    def copy(target: str) -> Path:
        # A folder of the name `torch` would be what `import torch` of these programs means.
        after = tmp_path_factory.mktemp("programs") / f"for_{target}"
        shutil.copytree(FOLDER, after)
        assert main(["--write", "--force", "--quiet", "--target", target, str(after)]) == 0
        return after

    return copy


def run(folder: Path, programs: dict[str, int], key: str) -> dict[str, str]:
    """Run programs with so many ranks on a device, and return what each prints, on a simulated one with `cuda` for the device's name.

    hpu names no index, so that of the first device is left out there.
    """
    simulated = [] if key == "cpu" else [str(Path(sys.executable).with_name("accel")), "sim", key, "--"]
    environment = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    if key == "cpu":
        environment["DS_ACCELERATOR"] = "cpu"
    done = subprocess.run(
        [*simulated, sys.executable, str(HERE / "run_programs.py"), str(folder)],
        input=json.dumps(programs), capture_output=True, text=True, check=False, timeout=3600,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    printed = {
        name: result["out"] if result["status"] == 0 else f"failed: {result['error']}"
        for name, result in results.items()
    }
    if key == "cpu":
        return printed
    return {name: re.sub(rf"\b{key}(:0)?\b", "cuda", text) for name, text in printed.items()}


@pytest.fixture(scope="module")
def on_cuda() -> dict[str, str]:
    """Return what the programs print on simulated CUDA before the port."""
    printed = run(FOLDER, {name: RANKS.get(name, 1) for name in PROGRAMS}, "cuda")
    assert not [name for name, text in printed.items() if text.startswith("failed")]
    return printed


def _changes(name: str) -> str:
    """Return what the port changes in a program."""
    (result,) = port_files([FOLDER / name])
    before, after = (data.decode().splitlines(keepends=True) for data in (result.before, result.after))
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=0))


@cache
def _reviewed() -> dict[str, str]:
    """Return the parts of the expected patch, by the name of their program."""
    parts = re.split(r"(?m)^(?=--- a/)", EXPECTED.read_text(encoding="utf-8"))
    return {part.partition("\n")[0].removeprefix("--- a/"): part for part in parts}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_becomes_what_was_reviewed(name: str) -> None:
    assert _changes(name) == _reviewed().get(name, "")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_ported_once(name: str, target: str) -> None:
    (result,) = port_files([FOLDER / name], target)
    assert not result.failure  # one says that a second run would change it
    assert result.changed or result.rows


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ODD_PROGRAMS)
def test_odd_program_is_ported_once(name: str, target: str) -> None:
    for line in ported_once(ODD_PROGRAMS[name], target).text.splitlines():
        code, _, expected = line.partition("  # -> ")
        expected = re.sub(r"\bA\b", "get_accelerator()", expected) if target != "torch" else ""
        assert code.strip() == expected or not expected


@pytest.mark.more
@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_odd_programs_print_the_same_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    for name, text in ODD_PROGRAMS.items():
        (tmp_path / f"{name} before.py").write_text(text)
        for target in TARGETS:
            (tmp_path / f"{name} {target}.py").write_text(port(text, target).text)
    printed = run(tmp_path, {path.name: 1 for path in sorted(tmp_path.iterdir())}, "cpu")
    for name in ODD_PROGRAMS:
        before = printed[f"{name} before.py"]
        assert not before.startswith("failed"), before
        for target in TARGETS:
            assert printed[f"{name} {target}.py"] == before, (name, target)


@pytest.mark.more
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("target", "names"),
    [
        pytest.param("deepspeed", PROGRAMS[::2], id="some"),
        *(pytest.param(target, PROGRAMS, id=target, marks=pytest.mark.slow) for target in TARGETS),
    ],
)
def test_programs_print_the_same_on_the_cpu(target, names, ported) -> None:
    pytest.importorskip("deepspeed")
    programs = {name: 1 for name in names if name not in NEED_A_DEVICE}
    before, after = (run(folder, programs, "cpu") for folder in (FOLDER, ported(target)))
    assert after == before
    assert not [name for name in programs if before[name].startswith("failed")]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("key", "target"), [*((key, "deepspeed") for key in DEVICES), ("npu", "accel"), ("npu", "torch")]
)
def test_programs_print_on_a_simulated_device_what_they_print_on_cuda(key, target, ported, on_cuda) -> None:
    pytest.importorskip("accel_sim")
    names = [name for name in PROGRAMS if (name, key) not in CANNOT]
    after = run(ported(target), {name: RANKS.get(name, 1) for name in names}, key)
    assert after == {name: on_cuda[name] for name in names}


if __name__ == "__main__":
    EXPECTED.write_text("".join(map(_changes, PROGRAMS)), encoding="utf-8")
