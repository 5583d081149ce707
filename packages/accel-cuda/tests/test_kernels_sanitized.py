# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The launcher's tests on an emulated driver that the compiler has instrumented for address and undefined behaviour."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import accel_sim
from accel_sim.driver import trials

DEVICE = Path(__file__).with_name("device")


def run(*tests: str, headers: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = trials.sanitized_environment()
    if environment is None:
        pytest.skip("not run: the compiler has no sanitizers")
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT", "PYTEST_XDIST_WORKER")
    base = {name: value for name, value in environment.items() if name not in unset}
    settings = {"ACCEL_TEST_FLAGS": " ".join(trials.SANITIZED), "ACCEL_TEST_HEADERS": str(headers or "")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", *(str(DEVICE / test) for test in tests)],
        env=accel_sim.environment("cuda", base={**base, **settings}),
        capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif("ACCEL_SIM" in os.environ, reason="not run: in the simulated process")
def test_launcher_s_tests_are_clean_under_the_sanitizers() -> None:
    done = run("test_kernels.py", "test_kernels_steps.py", "test_kernels_hip.py")
    assert not done.returncode, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif("ACCEL_SIM" in os.environ, reason="not run: in the simulated process")
def test_access_beyond_a_tensor_is_noticed(tmp_path: Path) -> None:
    right = "for (; i + kStepPack <= end; i += stride) of.pack"
    trials.planted(tmp_path / "include", right, right.replace("i + kStepPack <= end", "i < end"))
    done = run("test_kernels_steps.py::test_adam_and_lion_are_those_of_float64", headers=tmp_path / "include")
    assert done.returncode
    assert "heap-buffer-overflow" in done.stdout + done.stderr
