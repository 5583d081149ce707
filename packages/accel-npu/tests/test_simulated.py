# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""On a simulated NPU: the class, what is said of a torch_npu that cannot be used, and the bridge to DeepSpeed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import accel_sim
from accel_testkit import simulated_tests

SELECT = """
import accel_core
from accel_core.errors import AccelError
try:
    print(type(accel_core.get_accelerator()).__name__)
except AccelError as error:
    print(type(error).__name__, isinstance(error, ValueError), error)
print(accel_core.explain())
"""
SHOW = "from deepspeed.accelerator import get_accelerator; print(type(get_accelerator()).__module__)"


def run(source: str, *behaviour: str, **variables: str) -> str:
    """Run Python where a simulated NPU is, and nobody asks for an accelerator unless `variables` do."""
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT", "ASCEND_RT_VISIBLE_DEVICES")
    base = {name: value for name, value in os.environ.items() if name not in unset} | variables
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source],
        env=accel_sim.environment("npu", base=base, behaviour=behaviour),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_class_on_a_device() -> None:
    simulated_tests.run("npu", Path(__file__).with_name("device"))


def test_device_is_chosen_with_its_count() -> None:
    found = run(SELECT)
    assert found.startswith("NPU_Accelerator\n")
    assert "torch.npu counts 2" in found


@pytest.mark.parametrize("wanted", ["", "npu"])
def test_without_cann_the_error_says_what_is_missing_and_the_cpu_is_not_taken(wanted: str) -> None:
    # As where torch's own autoload is on, `import torch` itself fails.
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **({"DS_ACCELERATOR": wanted} if wanted else {})}
    found = run(SELECT, "npu.no-cann", **variables)
    assert "libhccl.so: cannot open shared object file" in found
    assert found.split()[1] == "True"  # a ValueError, as DeepSpeed's own
    assert wanted or "npu cannot be used, and the device is in this machine" in found


def test_ids_that_do_not_ascend_are_reported() -> None:
    assert "do not ascend" in run(SELECT, ASCEND_RT_VISIBLE_DEVICES="1,0")


@pytest.mark.upstream
@pytest.mark.parametrize(
    "first", ["import torch_npu, accel_npu", "import torch, torch_npu", "import deepspeed"]
)
def test_deepspeed_has_this_accelerator_whatever_is_imported_first(first: str) -> None:
    assert run(f"{first}; {SHOW}").splitlines()[-1] == "accel_npu.accelerator"
