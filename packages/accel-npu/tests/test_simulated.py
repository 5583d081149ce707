# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated device, and what is said of a torch_npu that cannot be used; each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import accel_sim

SELECT = """
import json, sys, accel_core
from accel_core.errors import AccelError
answer = {}
try:
    answer["chosen"] = type(accel_core.get_accelerator()).__name__
except AccelError as error:
    answer["error"] = [type(error).__name__, isinstance(error, ValueError), str(error)]
(npu,) = [each for each in accel_core.explain().candidates if each.key == "npu" and not each.upstream]
print(json.dumps({**answer, "state": npu.state.value, "reason": npu.reason}))
"""


def run(*command: str, behaviour: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python where a simulated NPU is, and nobody asks for an accelerator unless `variables` do."""
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT", "ASCEND_RT_VISIBLE_DEVICES")
    base = {name: value for name, value in os.environ.items() if name not in unset} | variables
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=accel_sim.environment("npu", base=base, behaviour=behaviour),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def select(**options: Any) -> dict[str, Any]:
    """What a process chooses, and what it says of npu."""
    done = run("-c", SELECT, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_class_on_a_device() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name("device")))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_device_is_chosen_with_its_count() -> None:
    answer = select()
    assert (answer["chosen"], answer["state"]) == ("NPU_Accelerator", "chosen")
    assert "torch.npu counts 2" in answer["reason"]


def test_without_cann_npu_is_broken_and_its_device_is_not_given_up_for_the_cpu() -> None:
    # As where torch's own autoload is on, `import torch` itself fails.
    answer = select(behaviour=("npu.no-cann",), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    name, _, text = answer["error"]
    assert name == "AcceleratorBroken"
    assert "npu cannot be used, and the device is in this machine" in text
    assert answer["state"] == "broken"
    assert "ImportError: libhccl.so: cannot open shared object file" in answer["reason"]


def test_asked_for_without_cann_the_error_says_what_is_missing() -> None:
    answer = select(behaviour=("npu.no-cann",), TORCH_DEVICE_BACKEND_AUTOLOAD="0", DS_ACCELERATOR="npu")
    name, is_value_error, text = answer["error"]
    assert is_value_error, name
    assert "libhccl.so" in text


def test_ids_that_do_not_ascend_are_told() -> None:
    answer = select(ASCEND_RT_VISIBLE_DEVICES="1,0")
    assert "do not ascend" in answer["reason"]
