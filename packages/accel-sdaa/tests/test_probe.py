# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the probe sees of a machine before and after it imports torch_sdaa."""

from __future__ import annotations

import pytest

from accel_core.selection import candidates
from accel_core.selection.candidates import State
from accel_sdaa.vendor import VENDOR
from accel_testkit.fake_runtime import FakeRuntime

NODE = "dev/tcaicard0"
COUNTING = """
class sdaa:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 4)
"""


def test_without_torch_sdaa_nothing_is_there(fake_runtime: FakeRuntime) -> None:
    fake_runtime.device(NODE)
    found = candidates.of_vendor(VENDOR)
    assert (found.state, found.runtime, found.reason) == (State.ABSENT, False, "torch_sdaa is not installed")


@pytest.mark.parametrize("version", ["3.2.0", "3.1.1a3", "3.3.0b0"])
def test_torch_sdaa_and_a_card_are_worth_a_look(fake_runtime: FakeRuntime, version: str) -> None:
    fake_runtime.install("torch_sdaa", version)
    fake_runtime.device(NODE)
    found = candidates.of_vendor(VENDOR)
    assert (found.state, found.runtime) == (State.PENDING, True)
    assert found.reason.startswith(f"torch_sdaa {version}; ")
    assert found.reason.endswith(f"{NODE} exists")


def test_without_a_card_the_wheel_is_no_device(fake_runtime: FakeRuntime) -> None:
    fake_runtime.install("torch_sdaa", "3.2.0")
    found = candidates.of_vendor(VENDOR)
    assert (found.state, found.runtime) == (State.ABSENT, True)
    assert "no device file dev/tcaicard[0-9]*" in found.reason


@pytest.mark.parametrize("version", ["2.0.0", "4.0"])
def test_a_release_that_was_not_tested_is_used_and_named(fake_runtime: FakeRuntime, version: str) -> None:
    fake_runtime.install("torch_sdaa", version)
    fake_runtime.device(NODE)
    found = candidates.of_vendor(VENDOR)
    assert (found.state, found.runtime) == (State.PENDING, True)
    assert f"torch_sdaa {version} was not tested; >=3.0,<4 was" in found.reason


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError", "OSError", "SystemExit"])
def test_a_runtime_that_fails_is_broken_and_says_how(fake_runtime: FakeRuntime, error: str) -> None:
    fake_runtime.install(
        "torch_sdaa", "3.2.0", f"raise {error}('libsdaart.so: cannot open shared object file')"
    )
    fake_runtime.device(NODE)
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert found.state is State.BROKEN
    assert found.reason == f"its runtime fails with {error}: libsdaart.so: cannot open shared object file"


@pytest.mark.parametrize(
    ("usable", "state", "devices"), [("True", State.PRESENT, 4), ("False", State.ABSENT, 0)]
)
def test_the_runtime_counts_devices_of_which_a_card_has_several(
    fake_runtime: FakeRuntime, usable: str, state: State, devices: int
) -> None:
    fake_runtime.install("torch_sdaa", "3.2.0", COUNTING.replace("True", usable))
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert (found.state, found.devices, found.reason) == (state, devices, f"torch.sdaa counts {devices}")
