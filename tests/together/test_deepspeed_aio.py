# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own tests of its `async_io`, from a checkout of its sources, on our op: the CPU, simulated devices."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accel_testkit import sim

#: The variable that names the checkout.
_CHECKOUT = "DEEPSPEED_CHECKOUT"
#: File, device, and how many of its cases have to pass there: the others need page-locked memory of CUDA. A file that
#: skips itself shows nothing.
_RUNS = (
    ("test_aio.py", "cpu", 52),
    ("test_aio.py", "npu", 52),
    ("test_aio.py", "cuda", 52),
    ("test_pinned_manager.py", "cpu", 1),
    ("test_pinned_manager.py", "npu", 1),
    ("test_aio_gil.py", "cuda", 7),
    ("test_fast_file_writer_fd_close.py", "cuda", 1),
)
_DROPPED = ("ACCEL_", "DS_", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A copy of the checkout's folder `tests` alone: beside it lies another DeepSpeed, which the tests would import."""
    if not (named := os.environ.get(_CHECKOUT)):
        pytest.skip(f"not run: {_CHECKOUT} names no checkout of DeepSpeed's sources")
    ignored = shutil.ignore_patterns("__pycache__", "model", "small_model_debugging")
    return Path(shutil.copytree(Path(named, "tests"), tmp_path / "tests", ignore=ignored))


def environment(key: str, folder: Path) -> dict[str, str]:
    """Of DeepSpeed's tests, which ask a vendor's program for the number of its devices."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    base |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    if key == "cpu":
        return base | {"DS_ACCELERATOR": "cpu"}
    folder.mkdir()
    for name, text in (("npu-smi", "Total Count : 2"), ("nvidia-smi", "GPU 0\nGPU 1")):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{text}'\n", encoding="utf-8")
        program.chmod(0o755)
    return sim.environment(key, devices=2, base=base | {"PATH": f"{folder}{os.pathsep}{base['PATH']}"})


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "key", "passing"), _RUNS)
def test_deepspeed_s_own_tests_pass_on_our_op(
    theirs: Path, tmp_path: Path, name: str, key: str, passing: int
) -> None:
    source = theirs / "unit" / "v1" / "nvme" / name
    if not source.exists():
        pytest.skip(f"not run: the checkout has no {name}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", str(source)],
        env=environment(key, tmp_path / "bin"), cwd=theirs, capture_output=True, text=True, check=False, timeout=1700,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.findall(r"(\d+) passed", done.stdout)
    assert passing <= sum(map(int, passed)), done.stdout[-2000:]
