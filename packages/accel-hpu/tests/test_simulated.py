# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated Gaudi in both modes, and the error for a runtime that fails."""

import subprocess
import sys
from pathlib import Path

import pytest

import accel_sim
from accel_testkit import simulated_tests

CHOSEN = "import accel_core; print(type(accel_core.get_accelerator()).__name__, accel_core.explain())"


@pytest.mark.parametrize("mode", ["1", "0"], ids=["lazy", "eager"])
def test_class_on_a_device(mode: str) -> None:
    simulated_tests.run("hpu", Path(__file__).with_name("device"), environment={"PT_HPU_LAZY_MODE": mode})


@pytest.mark.parametrize(
    ("behaviour", "reported"),
    [
        ([], ["HPU_Accelerator", "torch.hpu counts 2"]),
        (
            ["hpu.no-local-version"],
            ["AcceleratorBroken: [ACC-203] hpu cannot be used, and the device is in this machine",
             "AttributeError: 'NoneType' object has no attribute 'startswith'"],
        ),
    ],
    ids=["works", "stock torch"],
)  # fmt: skip
def test_device_is_chosen_or_an_error_and_never_given_up_for_the_cpu(
    behaviour: list[str], reported: list[str]
) -> None:
    environment = accel_sim.environment("hpu", behaviour=behaviour)
    for name in ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT", "PT_HPU_LAZY_MODE"):
        environment.pop(name, None)
    command = [sys.executable, "-W", "ignore", "-c", CHOSEN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert all(text in done.stdout + done.stderr for text in reported), done.stdout + done.stderr
