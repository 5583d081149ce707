# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated device."""

from pathlib import Path

from accel_testkit import simulated_tests


def test_class_on_a_device() -> None:
    simulated_tests.run("cuda", Path(__file__).with_name("device"))
