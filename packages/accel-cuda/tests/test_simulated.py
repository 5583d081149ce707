# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated device."""

from pathlib import Path

from accel_sim import testing


def test_class_on_a_device():
    testing.run("cuda", Path(__file__).with_name("device"))
