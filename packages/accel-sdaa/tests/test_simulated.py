# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class and its ops on a simulated device, which needs a process of its own."""

from pathlib import Path

from accel_sim import testing


def test_class_and_ops_on_a_device():
    testing.run("sdaa", Path(__file__).with_name("device"))
