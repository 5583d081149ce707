# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Accelerators that are chosen and cannot be made: broken as well, and the next one has its turn."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from accel_core.api import CURRENT
from accel_core.errors import AcceleratorBroken, AcceleratorUnavailable, NoAccelerator, StrictSelection
from accel_core.selection.candidates import State

FAILURES = {
    "ImportError": "raise ImportError('libtorch_npu.so')",
    "RuntimeError": "raise RuntimeError('driver in use')",
    "AssertionError": "assert False, 'no context'",
    "AttributeError": "torch.no_such_device",
    "OSError": "raise OSError('libhccl.so')",
    "FileNotFoundError": "open('/no/such/device')",
    "SystemExit": "raise SystemExit(1)",
    "TypeError": "raise TypeError('unexpected keyword')",
}
_LACKS_METHODS = """
from accel_core import DeepSpeedAccelerator
class Fake_Accelerator(DeepSpeedAccelerator):
    def is_available(self): return True
"""


@pytest.mark.parametrize("failure", FAILURES)
def test_constructor_that_raises_makes_the_candidate_broken_and_detection_goes_on(
    machine: Any, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    machine.install("npu", init=FAILURES[failure])
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    found = machine.candidate("npu")
    assert found.state is State.BROKEN
    assert found.reason.startswith(f"its accelerator cannot be constructed: {failure}: ")
    assert FAILURES[failure] in found.error
    (warning,) = caplog.messages
    assert found.reason in warning


def test_missing_methods_are_named_and_detection_goes_on(machine: Any) -> None:
    machine.install("npu", accelerator=_LACKS_METHODS)
    assert machine.select().device_name() == "cpu"
    reason = machine.candidate("npu").reason
    assert "methods are missing: " in reason
    assert {"device_count", "memory_allocated", "create_op_builder"} <= set(reason.replace(",", "").split())
    assert "is_available" not in reason


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "has no attribute 'Fake_Accelerator'"),
        ("import torch_npu_of_another_world", "ModuleNotFoundError"),
        ("def (", "SyntaxError"),
        ("class Fake_Accelerator: pass", "not an accelerator"),
        ("def Fake_Accelerator(): return None", "not an accelerator"),
        ("Fake_Accelerator = 7", "not callable"),
    ],
)
def test_accelerator_class_that_is_none_is_broken_and_detection_goes_on(
    machine: Any, text: str, reported: str
) -> None:
    machine.install("npu", accelerator=text)
    assert machine.select().device_name() == "cpu"
    assert reported in machine.candidate("npu").reason


@pytest.mark.parametrize(
    "how", [{"init": FAILURES["OSError"]}, {"accelerator": _LACKS_METHODS}], ids=["raises", "lacks methods"]
)
def test_asking_for_an_accelerator_that_can_not_be_made_gives_its_failure(
    machine: Any, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    machine.install("npu", **how)
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    error = machine.refused(AcceleratorBroken)
    assert "its accelerator cannot be constructed" in error.found


def test_strict_refuses_what_comes_after_an_accelerator_that_can_not_be_made(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu", init=FAILURES["RuntimeError"])
    machine.install("mlu")
    monkeypatch.setenv("ACCEL_STRICT", "1")
    assert "driver in use" in machine.refused(StrictSelection).found


def test_cpu_that_can_not_be_made_leaves_nothing(machine: Any) -> None:
    machine.install("npu", init=FAILURES["OSError"])
    (machine.site / "fake_accel_cpu" / "accelerator.py").write_text("raise ImportError('libgomp.so.1')")
    error = machine.refused(NoAccelerator)
    assert "libgomp.so.1" in error.found
    assert "libhccl.so" in error.found


# ------------------------------------------------------------------------- left to DeepSpeed's own backend


@pytest.fixture
def supa(machine: Any, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The machine has a device that no package of ours serves."""
    (machine.site / "torch_supa.py").touch()
    monkeypatch.setattr("torch.supa", torch.cpu, raising=False)
    return monkeypatch


@pytest.fixture
def deepspeed(supa: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """And a DeepSpeed that has a backend for it."""
    supa.setattr(CURRENT.deepspeed, "keys", lambda: frozenset({"cuda", "supa"}))
    supa.setattr(CURRENT.deepspeed, "load", lambda: None)
    # Where another test has imported DeepSpeed its op tables would be filled from the objects of these tests.
    supa.delitem(sys.modules, "deepspeed.ops.op_builder.all_ops", raising=False)
    return supa


def test_device_that_only_deepspeed_serves_is_left_to_its_own_backend(
    machine: Any, deepspeed: pytest.MonkeyPatch
) -> None:
    own = object()
    deepspeed.setattr(CURRENT.deepspeed, "accelerator", {"supa": own}.__getitem__)
    assert machine.select() is own
    assert machine.candidate("supa").state is State.DEFERRED


def test_backend_of_deepspeed_that_can_not_be_made_is_broken_and_detection_goes_on(
    machine: Any, deepspeed: pytest.MonkeyPatch
) -> None:
    deepspeed.setattr(CURRENT.deepspeed, "accelerator", _failing)
    assert machine.select().device_name() == "cpu"
    assert "no such backend: supa" in machine.candidate("supa").reason


def test_asking_for_a_backend_of_deepspeed_that_can_not_be_made_gives_its_failure(
    machine: Any, deepspeed: pytest.MonkeyPatch
) -> None:
    deepspeed.setattr(CURRENT.deepspeed, "accelerator", _failing)
    deepspeed.setenv("DS_ACCELERATOR", "supa")
    assert "no such backend: supa" in machine.refused(AcceleratorBroken).found


def test_deepspeed_that_can_not_be_imported_makes_its_backend_broken(
    machine: Any, deepspeed: pytest.MonkeyPatch
) -> None:
    deepspeed.setattr(CURRENT.deepspeed, "load", lambda: _failing("deepspeed"))
    deepspeed.setenv("DS_ACCELERATOR", "supa")
    assert "no such backend: deepspeed" in machine.refused(AcceleratorBroken).found


def test_without_deepspeed_the_error_names_the_package_to_install(
    machine: Any, supa: pytest.MonkeyPatch
) -> None:
    assert machine.refused(AcceleratorUnavailable).do.startswith("pip install deepspeed")


def test_asking_for_a_backend_of_deepspeed_without_a_device_is_told(
    machine: Any, deepspeed: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = object()
    deepspeed.setattr(CURRENT.deepspeed, "accelerator", {"cuda": own}.__getitem__)
    deepspeed.setattr("torch.version.cuda", "13.0")
    deepspeed.setenv("DS_ACCELERATOR", "cuda")
    assert machine.select() is own
    (warning,) = caplog.messages
    assert warning.startswith("DS_ACCELERATOR=cuda is chosen though no device is present")


def _failing(key: str) -> Any:
    raise ImportError(f"no such backend: {key}")
