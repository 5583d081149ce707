# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The accel-acme authors
# SPDX-License-Identifier: Apache-2.0
"""What can be seen before the runtime is imported."""

from __future__ import annotations

import pytest
from accel_testkit.fake_runtime import FakeRuntime

from accel_acme import probe


@pytest.mark.parametrize(("version", "usable"), [("0.1.0", True), ("1.0", False)])
def test_a_release_in_the_range_is_evidence(
    version: str, usable: bool, fake_runtime: FakeRuntime
) -> None:
    fake_runtime.install(probe.DISTRIBUTION, version)
    evidence = probe.evidence()
    assert evidence.runtime is usable
    assert f"{probe.DISTRIBUTION} {version}" in evidence.reason
    assert evidence.hardware is None
