# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A failed selection stays failed: the same error at every call, never a silent CPU."""

from __future__ import annotations

import inspect
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import accel_core
from accel_core import errors
from accel_core.api import CURRENT
from accel_core.errors import DOCUMENTATION, AcceleratorBroken, AccelError

ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AccelError)]
_ONCE = "import builtins; builtins.asked.append(1); raise OSError('libhccl.so')"


@pytest.fixture
def asked(machine: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time the runtime of the npu, which fails, was asked."""
    times: list[int] = []
    monkeypatch.setattr("builtins.asked", times, raising=False)
    machine.install("npu", confirm=_ONCE)
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    return times


def test_every_call_raises_the_same_error_with_a_traceback_of_its_own(machine: Any, asked: list[int]) -> None:
    first = machine.refused(AcceleratorBroken)
    depth = len(traceback.extract_tb(first.__traceback__))
    for _ in range(3):
        again = machine.refused(AcceleratorBroken)
        assert (type(again), str(again)) == (type(first), str(first))
        assert len(traceback.extract_tb(again.__traceback__)) == depth
    assert asked == [1]


def test_error_that_was_caught_keeps_its_traceback_when_the_next_call_raises(
    machine: Any, asked: list[int]
) -> None:
    def by_the_first_caller() -> AccelError:
        try:
            CURRENT.get()
        except AccelError as error:
            return error
        raise AssertionError("selected")

    first = by_the_first_caller()
    machine.refused(AcceleratorBroken)
    assert "by_the_first_caller" in [frame.name for frame in traceback.extract_tb(first.__traceback__)]


def test_taking_the_variable_back_does_not_turn_the_failure_into_a_cpu(
    machine: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.refused(AcceleratorBroken)
    monkeypatch.delenv("DS_ACCELERATOR")
    machine.refused(AcceleratorBroken)


def test_clearing_the_choice_selects_again(machine: Any, asked: list[int], monkeypatch: Any) -> None:
    machine.refused(AcceleratorBroken)
    monkeypatch.delenv("DS_ACCELERATOR")
    accel_core.set_accelerator(None)
    assert machine.select().device_name() == "cpu"
    assert asked == [1, 1]


def test_setting_an_accelerator_ends_the_failure(machine: Any, asked: list[int], accelerator: Any) -> None:
    machine.refused(AcceleratorBroken)
    accel_core.set_accelerator(accelerator)
    assert machine.select() is accelerator


def test_using_an_accelerator_for_a_while_brings_the_failure_back_after_it(
    machine: Any, asked: list[int], accelerator: Any
) -> None:
    first = machine.refused(AcceleratorBroken)
    with accel_core.using(accelerator):
        assert machine.select() is accelerator
    assert str(machine.refused(AcceleratorBroken)) == str(first)
    assert asked == [1]


def test_explaining_a_failure_gives_its_text_and_findings(machine: Any, asked: list[int]) -> None:
    explanation = accel_core.explain()
    assert explanation.chosen == ""
    assert explanation.error == str(explanation)
    assert explanation.error.startswith("[ACC-203] ")
    assert "npu" in {candidate.key for candidate in explanation.candidates}
    assert asked == [1]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_four_parts_a_code_of_its_own_and_survives_a_pickle(
    kind: type[AccelError], four_parts: Callable[[AccelError], AccelError]
) -> None:
    error = kind(what="it failed", found="this\nand that", expected="something else", do="repair it")
    four_parts(error)
    assert (error.what, error.found) == ("it failed", "this\nand that")
    assert kind.__doc__


def test_a_traceback_names_the_address_of_the_paragraph_about_the_code() -> None:
    error = AccelError.__subclasses__()[0](what="it failed", found="this", expected="that", do="repair it")
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert same.__notes__ == [f"  see:      {DOCUMENTATION}/errors.md#{error.code.lower()}"]
    if sys.version_info >= (3, 11):
        assert traceback.format_exception(error)[-1].endswith(f"errors.md#{error.code.lower()}\n")
