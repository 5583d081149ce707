# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the probe sees of a machine before and after it imports torch_mlu."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel_core.selection import candidates
from accel_core.selection.candidates import Candidate, State
from accel_core.vendor import distribution_version
from accel_mlu.vendor import VENDOR
from accel_testkit.fake_runtime import FakeRuntime

NODE = "dev/cambricon_dev0"
TORCH = ".".join(str(distribution_version("torch")).split(".")[:2])
COUNTING = """
class mlu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
"""


@pytest.fixture
def seen(fake_runtime: FakeRuntime) -> Callable[..., Candidate]:
    """What is found, without an import, on a machine with that torch_mlu and those device files."""

    def look(version: str, *nodes: str) -> Candidate:
        fake_runtime.install("torch_mlu", version)
        fake_runtime.device(*nodes)
        return candidates.of_vendor(VENDOR)

    return look


def test_without_torch_mlu_nothing_is_there(fake_runtime: FakeRuntime) -> None:
    fake_runtime.device(NODE)
    found = candidates.of_vendor(VENDOR)
    assert (found.state, found.runtime, found.reason) == (State.ABSENT, False, "torch_mlu is not installed")


@pytest.mark.parametrize("version", ["1.25.0", "1.29.2", f"1.33.1+torch{TORCH}.0", "1.30.0rc1"])
def test_torch_mlu_and_a_device_file_are_worth_a_look(seen: Callable[..., Candidate], version: str) -> None:
    found = seen(version, NODE)
    assert (found.state, found.runtime) == (State.PENDING, True)
    assert found.reason.startswith(f"torch_mlu {version}; ")
    assert found.reason.endswith(f"{NODE} exists")


def test_without_a_device_file_the_wheel_is_no_device(seen: Callable[..., Candidate]) -> None:
    found = seen("1.25.0", "dev/cambricon_ctl")
    assert (found.state, found.runtime) == (State.ABSENT, True)
    assert "no device file dev/cambricon_dev[0-9]*" in found.reason


@pytest.mark.parametrize("version", ["1.17.0", "2.0", "unknown"])
def test_a_release_that_was_not_tested_is_used_and_named(
    seen: Callable[..., Candidate], version: str
) -> None:
    found = seen(version, NODE)
    assert (found.state, found.runtime) == (State.PENDING, True)
    assert f"torch_mlu {version} was not tested; >=1.22,<2 was" in found.reason


def test_a_wheel_for_another_torch_is_named_before_it_fails(seen: Callable[..., Candidate]) -> None:
    found = seen("1.25.0+torch2.4.1", NODE)
    assert (found.state, found.runtime) == (State.ABSENT, False)
    assert "built for torch 2.4; this is torch " in found.reason


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError", "OSError", "SystemExit"])
def test_a_runtime_that_fails_is_broken_and_says_how(fake_runtime: FakeRuntime, error: str) -> None:
    fake_runtime.install(
        "torch_mlu", "1.25.0", f"raise {error}('libcnrt.so: cannot open shared object file')"
    )
    fake_runtime.device(NODE)
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert found.state is State.BROKEN
    assert found.reason == f"its runtime fails with {error}: libcnrt.so: cannot open shared object file"


def test_the_count_names_a_variable_that_is_overruled(
    fake_runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_runtime.install("torch_mlu", "1.25.0", COUNTING)
    monkeypatch.setenv("CN_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("MLU_VISIBLE_DEVICES", "2,3")
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert (found.state, found.devices) == (State.PRESENT, 2)
    assert found.reason == "torch.mlu counts 2; CN_VISIBLE_DEVICES=0,1 overrules MLU_VISIBLE_DEVICES=2,3"


def test_a_runtime_without_a_usable_device_is_absent(fake_runtime: FakeRuntime) -> None:
    fake_runtime.install("torch_mlu", "1.25.0", COUNTING.replace("True", "False"))
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert (found.state, found.devices) == (State.ABSENT, 0)
