# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The tests pass from the wheel too, without the packages that accel-cpu does not require."""

from pathlib import Path

import pytest

from shared import wheel_environment


@pytest.mark.timeout(1800)
def test_own_tests_pass_from_wheel(tmp_path: Path) -> None:
    wheel_environment.run_tests("accel-cpu", tmp_path, tests="shm/test_rendezvous.py")
