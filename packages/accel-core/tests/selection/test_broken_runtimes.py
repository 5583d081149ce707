# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Vendors whose runtime fails, hangs or answers nonsense: broken, never absent, and detection goes on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import accel_core
from accel_core.api import CURRENT
from accel_core.errors import AcceleratorBroken, StrictSelection
from accel_core.selection.candidates import State

FAILURES = {
    "ImportError": "raise ImportError('libascendcl.so: cannot open shared object file')",
    "RuntimeError": "raise RuntimeError('Two accelerators cannot be used at the same time')",
    "AssertionError": "raise AssertionError('Torch not compiled with NPU enabled')",
    "AttributeError": "raise AttributeError('module torch has no attribute npu')",
    "OSError": "raise OSError('libhccl.so: undefined symbol')",
    "FileNotFoundError": "raise FileNotFoundError(2, 'No such file', 'required_version.txt')",
    "SystemExit": "raise SystemExit(3)",
}
any_failure = pytest.mark.parametrize("failure", FAILURES)
any_question = pytest.mark.parametrize("question", ["evidence", "confirm"])


@any_question
@any_failure
def test_failing_runtime_is_broken_and_told_in_the_warning_of_the_fall_back(
    machine: Any, caplog: pytest.LogCaptureFixture, failure: str, question: str
) -> None:
    machine.install("npu", **{question: FAILURES[failure]})
    assert machine.select().device_name() == "cpu"
    found = machine.candidate("npu")
    assert found.state is State.BROKEN
    assert f"fails with {failure}: " in found.reason
    assert FAILURES[failure] in found.error
    (warning,) = caplog.messages
    assert warning.startswith("Setting accelerator to CPU")
    assert f"npu: broken: {found.reason}" in warning


@any_failure
def test_detection_goes_on_after_a_failing_runtime_and_tells_it(
    machine: Any, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    machine.install("npu", confirm=FAILURES[failure])
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    (warning,) = caplog.messages
    assert warning.startswith("npu is broken and was passed over: ")
    assert failure in warning


@any_question
@any_failure
def test_strict_refuses_to_run_beside_a_failing_runtime(
    machine: Any, monkeypatch: pytest.MonkeyPatch, failure: str, question: str
) -> None:
    machine.install("npu", **{question: FAILURES[failure]})
    machine.install("mlu")
    monkeypatch.setenv("ACCEL_STRICT", "1")
    error = machine.refused(StrictSelection)
    assert error.what == "ACCEL_STRICT=1 refuses mlu beside broken ones"
    assert error.found == f"npu: broken: {machine.candidate('npu').reason}"
    assert failure in error.found


@any_question
@any_failure
def test_asking_for_a_failing_runtime_gives_its_failure(
    machine: Any, monkeypatch: pytest.MonkeyPatch, failure: str, question: str
) -> None:
    machine.install("npu", **{question: FAILURES[failure]})
    machine.install("mlu", confirm="raise AssertionError('nobody asked for mlu')")
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    error = machine.refused(AcceleratorBroken)
    assert isinstance(error, ValueError)
    assert "NPU_Accelerator requires torch_npu" in error.what
    assert f"fails with {failure}" in error.found
    assert machine.candidate("mlu").state is State.PENDING
    reported = {candidate.label: candidate.state for candidate in accel_core.explain().candidates}
    assert reported["mlu"] is State.OUTRANKED


@pytest.mark.parametrize("devices", [0, 2])
def test_asked_road_that_fails_gives_way_to_the_next_road_and_is_told(
    machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, devices: int
) -> None:
    ipex, native = "variant='ipex'", "variant='native'"
    counts = f"return Confirmation({devices}, 'counts {devices}')"
    machine.install("xpu", package="xpu-ipex", priority=900, record=ipex, confirm=FAILURES["OSError"])
    machine.install("xpu", package="xpu-native", priority=800, record=native, confirm=counts)
    monkeypatch.setenv("DS_ACCELERATOR", "xpu")
    assert machine.select().device_name() == "xpu"
    assert machine.candidate("xpu (native)").state is State.CHOSEN
    assert caplog.messages[0].startswith("xpu (ipex) is broken and was passed over: ")
    no_device = "DS_ACCELERATOR=xpu is chosen though no device is present: counts 0. "
    assert [text.startswith(no_device) for text in caplog.messages[1:]] == [True] * (not devices)


@pytest.mark.parametrize("answer", ["None", "'two'", "Confirmation('two', 'counts two')", "2"])
def test_runtime_that_answers_nonsense_is_broken(machine: Any, answer: str) -> None:
    machine.install("npu", confirm=f"return {answer}")
    assert machine.select().device_name() == "cpu"
    assert machine.candidate("npu").state is State.BROKEN


def test_probe_that_lacks_a_question_is_broken(machine: Any) -> None:
    module = machine.install("npu")
    (machine.site / module / "probe.py").write_text("def evidence(): return 3")
    assert machine.select().device_name() == "cpu"
    assert machine.candidate("npu").state is State.BROKEN


def test_runtime_that_asks_for_the_accelerator_while_it_is_asked_is_broken(machine: Any) -> None:
    machine.install("npu", confirm="import accel_core; return accel_core.get_accelerator()")
    assert machine.select().device_name() == "cpu"
    assert "while the accelerator was being selected" in machine.candidate("npu").reason


# -------------------------------------------------------------------------------- hanging, interrupted


class _GoOn(logging.Handler):
    """Lets the hanging runtime go on as soon as the first warning is out."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.reported.set()


def test_hanging_runtime_is_named_with_the_variable_that_skips_it_while_the_run_waits(
    machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("accel_core.selection.candidates.SLOW", 0.05)
    handler = _GoOn()
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers, handler])  # after caplog's
    monkeypatch.setattr("builtins.told_while_waiting", handler.reported, raising=False)
    machine.install("npu", confirm="return Confirmation(int(told_while_waiting.wait(60)), 'at last')")
    assert machine.select().device_name() == "npu"
    (warning,) = caplog.messages
    assert warning.startswith("still waiting for the runtime of npu after 0.05 s")
    assert "ACCEL_SKIP=npu" in warning


def test_skipped_runtime_is_not_asked(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.install("npu", confirm="raise KeyboardInterrupt('asked in spite of ACCEL_SKIP')")
    monkeypatch.setenv("ACCEL_SKIP", "npu")
    assert machine.select().device_name() == "cpu"
    assert machine.candidate("npu").state is State.BLOCKED


def test_interrupt_passes_through_and_the_next_call_selects_anew(machine: Any) -> None:
    module = machine.install("npu", confirm="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        machine.select()
    assert CURRENT.state() == (None, None)
    probe = sys.modules[f"{module}.probe"]
    probe.confirm = lambda: probe.Confirmation(2, "counts 2")
    assert machine.select().device_name() == "npu"


# ---------------------------------------------------------------------------------------- PrivateUse1

_STALE = "import torch; torch.utils.rename_privateuse1_backend('npu'); raise RuntimeError('stale')"
_SHOW = """
import accel_core
from accel_core.api import CURRENT
print(accel_core.get_accelerator().device_name())
print(*[f"{f.label}: {f.state.value}: {f.reason}" for f in CURRENT.state()[1].verdict.candidates], sep="\\n")
"""


def _selected_in_a_process_of_its_own(machine: Any, **variables: str) -> str:
    path = os.pathsep.join([str(machine.site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    run = subprocess.run(
        [sys.executable, "-c", _SHOW],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return run.stdout


def test_stale_runtime_that_holds_privateuse1_blocks_the_next_until_it_is_skipped(machine: Any) -> None:
    machine.install("npu", record="privateuse1='npu'", confirm=_STALE)
    machine.install("mlu", record="privateuse1='mlu'")
    shown = _selected_in_a_process_of_its_own(machine)
    assert shown.startswith("cpu\n")
    assert "npu: broken: its runtime fails with RuntimeError: stale" in shown
    assert "mlu: blocked: blocked by npu" in shown
    assert "ACCEL_SKIP=npu" in shown
    assert _selected_in_a_process_of_its_own(machine, ACCEL_SKIP="npu").startswith("mlu\n")
