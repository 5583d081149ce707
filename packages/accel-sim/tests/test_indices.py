# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device arguments fail as in the real modules: for each function of a surface that takes one."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import accel_sim
from accel_sim import vendors

CALLS = Path(__file__).with_name("index_calls.py")
DESCRIBED = ("get_device_name", "get_device_properties", "get_device_capability", "can_device_access_peer")
GENERATORS = ("get_rng_state", "set_rng_state")
RESETS = ("reset_peak_memory_stats", "reset_accumulated_memory_stats")
#: Functions that return what they are given, or, as torch_npu's, ignore the device.
ANY = ("99", "cpu", "another type", "-5")
TAKES_ALL = {"_get_device_index": ("99", "-5"), "npu get_device_capability": ANY, "hpu Stream": ANY}
ONLY_NEGATIVE = ("set_device", "synchronize", "device", "Stream", "current_stream", "default_stream")
#: The other vendors' modules with a surface differ from these in single functions only; they are slow tests.
QUICK = ("npu", "cuda")
KEYS = ("npu", "mlu", "hpu", "xpu", "cuda", "sdaa", "mps")


@cache
def outcomes(key: str) -> dict[str, dict[str, str]]:
    """What each call of each function raised, by function and wrong device."""
    packages = vendors.find(key).packages
    package = "habana_frameworks.torch" if key == "hpu" else next(iter(packages), "")
    environment = accel_sim.environment(key, base={**os.environ, "OMP_NUM_THREADS": "1"})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(CALLS), package],
        env=environment, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def expected(key: str, function: str, wrong: str) -> str:
    """The name of the exception that the real function raises, empty for none."""
    if wrong in TAKES_ALL.get(function, ()) or wrong in TAKES_ALL.get(f"{key} {function}", ()):
        return ""
    if function in GENERATORS:
        return _of_generator(key, wrong)
    if wrong in ("cpu", "another type"):
        return "ValueError"
    refused = key == "hpu" and function in ("set_device", "device")
    if wrong == "-5" and function in ONLY_NEGATIVE and not refused:
        return ""
    return _out_of_range(key, function)


def _of_generator(key: str, wrong: str) -> str:
    if key == "mps":
        return ""  # it has one generator, and does not look at the argument
    if wrong in ("cpu", "another type"):
        return "ValueError" if key in ("npu", "hpu") else ""
    return "RuntimeError" if key == "hpu" or wrong == "-5" else "IndexError"


def _out_of_range(key: str, function: str) -> str:
    if key == "hpu":
        streams = ("current_stream", "default_stream")
        return "RuntimeError" if function in streams else "AssertionError"
    if function in DESCRIBED:
        return "RuntimeError" if key == "xpu" else "AssertionError"
    if key == "npu" and function in ("mem_get_info", "utilization"):
        return "AssertionError"
    driver = function in ("set_device", "synchronize", "device", "Stream", "mem_get_info")
    return "AcceleratorError" if key == "cuda" and driver else "RuntimeError"


@pytest.mark.parametrize(
    "key", [key if key in QUICK else pytest.param(key, marks=pytest.mark.slow) for key in KEYS]
)
def test_wrong_device_raises_what_the_real_function_raises(key):
    wrong = []
    assert "get_device_name" in {name.partition("(")[0] for name in outcomes(key)} or key in ("sdaa", "mps")
    for name, by_device in outcomes(key).items():
        for device, error in by_device.items():
            wanted = expected(key, name.partition("(")[0], device)
            if error.partition(":")[0] not in (wanted, "not simulated"):
                wrong.append(f"{name}, {device}: {error or 'nothing'}, expected {wanted or 'nothing'}")
    assert wrong == []


def test_devices_without_an_index_are_the_current_one_only_where_torch_takes_them(python):
    source = """
import torch, {package}
module = getattr(torch, {key!r})
module.set_device(1)
print(module.get_device_name({key!r}) != "", module.current_stream({key!r}).device_index)
try:
    module.set_device({key!r})
    print("set", module.current_device())
except ValueError as error:
    print(error)
"""
    on_cuda = python("cuda", source.format(key="cuda", package="os"))
    assert on_cuda.stdout.splitlines() == [
        "True 1", "Expected a torch.device with a specified index or an integer, but got:cuda"
    ], on_cuda.stderr  # fmt: skip
    on_npu = python("npu", source.format(key="npu", package="torch_npu"))
    assert on_npu.stdout.splitlines() == ["True 1", "set 1"], on_npu.stderr
