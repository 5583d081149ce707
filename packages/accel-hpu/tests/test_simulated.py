# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated Gaudi in both modes."""

from pathlib import Path

import pytest

from accel_sim import testing


@pytest.mark.parametrize("mode", ["1", "0"], ids=["lazy", "eager"])
@pytest.mark.sample("eager")
def test_class_on_a_device(mode):
    testing.run("hpu", Path(__file__).with_name("device"), environment={"PT_HPU_LAZY_MODE": mode})
