# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class and the ops of each vendor, `tests/device` of its package, on a simulated device in its own process."""

from pathlib import Path

import pytest

from accel_sim import testing

KEYS = ("cuda", "klxpu", "mlu", "mps", "npu", "sdaa", "supa", "xpu")


@pytest.mark.parametrize("key", [*KEYS, "hpu", pytest.param("hpu-lazy", marks=pytest.mark.slow)])
def test_class_and_ops_on_a_device(key):
    key, _, lazy = key.partition("-")
    tests = Path(__file__).parents[2] / f"packages/accel-{key}/tests/device"
    testing.run(key, tests, environment={"PT_HPU_LAZY_MODE": "1" if lazy else "0"})
