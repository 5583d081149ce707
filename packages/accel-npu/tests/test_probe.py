# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the probe sees of a machine before it imports torch_npu, and of an import that fails."""

from __future__ import annotations

import pytest

from accel_core.selection import candidates
from accel_core.selection.candidates import State
from accel_npu.vendor import VENDOR
from accel_testkit.fake_runtime import FakeRuntime

NODE = "dev/davinci0"


@pytest.mark.parametrize(
    ("version", "nodes", "state", "runtime", "reported"),
    [
        ("", [NODE], State.ABSENT, False, "torch_npu is not installed"),
        ("2.13.0", [NODE], State.PENDING, True, "torch_npu 2.13.0; ASCEND_HOME_PATH is not set"),
        ("2.13.0", ["dev/davinci_manager"], State.ABSENT, True, "no device file dev/davinci[0-9]*"),
        ("2.1.0", [NODE], State.PENDING, True, "torch_npu 2.1.0 was not tested; >=2.5,<2.15 was"),
        ("2.15.0", [NODE], State.PENDING, True, "torch_npu 2.15.0 was not tested; >=2.5,<2.15 was"),
    ],
)
def test_evidence_is_taken_without_an_import(
    version: str, nodes: list[str], state: State, runtime: bool, reported: str,
    fake_runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    if version:
        fake_runtime.install("torch_npu", version)
    fake_runtime.device(*nodes)
    found = candidates.of_vendor(VENDOR)
    assert (found.state, found.runtime) == (state, runtime)
    assert reported in found.reason


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError", "OSError"])
def test_a_runtime_that_fails_is_broken_and_says_how(fake_runtime: FakeRuntime, error: str) -> None:
    fake_runtime.install(
        "torch_npu", "2.13.0", f"raise {error}('libhccl.so: cannot open shared object file')"
    )
    fake_runtime.device(NODE)
    found = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert found.state is State.BROKEN
    assert found.reason == f"its runtime fails with {error}: libhccl.so: cannot open shared object file"
