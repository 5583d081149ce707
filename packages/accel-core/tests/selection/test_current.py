# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The one accelerator of the process: setting it, using one for a while, asking from threads; a failure stays."""

import importlib
import inspect
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import accel_core
from accel_core import errors
from accel_core.api import CURRENT
from accel_core.errors import AcceleratorBroken, AccelError, NotAnAccelerator
from accel_core.interface import DeepSpeedAccelerator

from .conftest import nothing_changed, whole


def test_set_accelerator_precedes_environment(machine: Any, accelerator: Any, monkeypatch: Any) -> None:
    machine.install("npu", confirm="raise KeyboardInterrupt('nobody asked for npu')")
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    accel_core.set_accelerator(accelerator)
    assert machine.select() is accelerator
    assert accel_core.explain().how == "set by the program"


#: Has one of the methods and derives from nothing.
_ALMOST = SimpleNamespace(is_available=lambda: True)


@pytest.mark.parametrize("given", ["cpu", 0, object(), _ALMOST], ids=["str", "int", "object", "almost"])
@pytest.mark.parametrize("caught", [AssertionError, TypeError, NotAnAccelerator])
def test_setting_another_object_changes_nothing(machine: Any, given: Any, caught: type[Exception]) -> None:
    former = machine.select()
    with nothing_changed(), pytest.raises(caught) as error:
        accel_core.set_accelerator(given)
    refused = whole(error.value)
    missing = len(DeepSpeedAccelerator.__abstractmethods__) - (given is _ALMOST)
    assert f"is not an accelerator: it lacks {missing} methods (" in refused.message
    assert "available_memory" in refused.message
    assert refused.do.startswith("pass an instance of a vendor package's class, such as `from ")
    assert refused.message.endswith(", …)")
    assert len(refused.message) < 250
    assert machine.select() is former


def test_listener_that_raises_changes_nothing(machine: Any, accelerator: Any, monkeypatch: Any) -> None:
    reported: list[Any] = []

    def refuse(new: Any) -> None:
        if new is accelerator:
            raise RuntimeError("its op table is broken")

    former = machine.select()
    monkeypatch.setattr(CURRENT, "_listeners", [reported.append, refuse])
    with pytest.raises(RuntimeError, match="op table"):
        accel_core.set_accelerator(accelerator)
    assert accel_core.get_accelerator() is former
    assert reported == [accelerator, former]
    assert accel_core.explain().how != "set by the program"


def test_using_restores_after_an_exception(machine: Any, accelerator: Any) -> None:
    def use() -> None:
        with accel_core.using(accelerator) as used:
            assert accel_core.get_accelerator() is accelerator is used
            raise KeyError

    former = machine.select()
    with nothing_changed(), pytest.raises(KeyError):
        use()
    assert machine.select() is former


def test_using_before_any_choice(machine: Any, accelerator: Any) -> None:
    with accel_core.using(accelerator):
        assert machine.select() is accelerator
    assert CURRENT.state() == (None, None)
    assert machine.select().device_name() == "cpu"


@pytest.mark.parametrize(
    ("given", "says"),
    [(object(), "object"), ("tpu", "found 'tpu'"), ("npu", "npu"), ("", "found ''"), (None, "found ''")],
)
def test_using_another_object_changes_nothing(machine: Any, given: Any, says: str) -> None:
    former = machine.select()
    with pytest.raises(NotAnAccelerator, match=says), accel_core.using(given):
        pass
    assert machine.select() is former


def test_using_a_key(machine: Any, monkeypatch: Any) -> None:
    machine.install("npu")
    former = machine.select()
    assert former.device_name() == "npu"
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    with accel_core.using("cpu") as used:
        assert used is machine.select()
        assert used.device_name() == "cpu"
    assert machine.select() is former


@pytest.fixture
def made(machine: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each accelerator that a constructor with `made.append(1)` has made."""
    made: list[int] = []
    monkeypatch.setattr("builtins.made", made, raising=False)
    return made


def test_sixteen_threads_get_one_object(machine: Any, made: list[int]) -> None:
    slow = "import time; time.sleep(0.05); return Confirmation(2, '2')"
    machine.install("npu", confirm=slow, init="made.append(1)")
    start = threading.Barrier(16)

    def select(_: int) -> Any:
        start.wait(60)
        return accel_core.get_accelerator()

    with nothing_changed(), ThreadPoolExecutor(16) as threads:
        got = list(threads.map(select, range(16)))
    assert {id(each) for each in got} == {id(got[0])}
    assert got[0].device_name() == "npu"
    assert made == [1]


@pytest.mark.timeout(120)
def test_selection_while_another_thread_imports_deepspeed(
    machine: Any, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    importing, selecting = threading.Event(), threading.Event()
    for name, value in {"importing": importing, "selecting": selecting}.items():
        monkeypatch.setattr(f"builtins.{name}", value, raising=False)
    imports = "import accel_core; importing.set(); selecting.wait(60); accel_core.get_accelerator()"
    machine.module("like_deepspeed.py", imports)
    counts = "selecting.set(); return Confirmation(2, 'counts 2')"
    machine.install("npu", record="imports_deepspeed=True", confirm=counts, init="made.append(1)")
    monkeypatch.setattr(CURRENT.deepspeed, "load", lambda: importlib.import_module("like_deepspeed"))
    with ThreadPoolExecutor(1) as other:
        imported = other.submit(importlib.import_module, "like_deepspeed")
        assert importing.wait(60)
        accelerator = machine.select()
        imported.result(60)
    assert accelerator.device_name() == "npu"
    assert made == [1]


# --- a failed selection stays failed: the same error at every call, never a silent CPU

ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AccelError)]


@pytest.fixture
def asked(machine: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time the runtime of the npu, which fails, was asked."""
    asked: list[int] = []
    monkeypatch.setattr("builtins.asked", asked, raising=False)
    machine.install("npu", confirm="asked.append(1); raise OSError('libhccl.so')")
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    return asked


def test_every_call_raises_the_same_error(machine: Any, asked: list[int]) -> None:
    first = machine.refused(AcceleratorBroken)
    depth = len(traceback.extract_tb(first.__traceback__))
    for _ in range(3):
        again = machine.refused(AcceleratorBroken)
        assert (type(again), str(again)) == (type(first), str(first))
        assert len(traceback.extract_tb(again.__traceback__)) == depth
    assert asked == [1]


def test_clearing_the_choice_selects_again(machine: Any, asked: list[int], monkeypatch: Any) -> None:
    machine.refused(AcceleratorBroken)
    monkeypatch.delenv("DS_ACCELERATOR")
    accel_core.set_accelerator(None)
    assert machine.select().device_name() == "cpu"
    assert asked == [1, 1]


def test_failed_selection_is_explained(machine: Any, asked: list[int]) -> None:
    explanation = accel_core.explain()
    assert explanation.chosen == ""
    assert explanation.error == str(explanation)
    assert explanation.error.startswith("DS_ACCELERATOR=npu cannot be used")
    assert "npu" in {candidate.key for candidate in explanation.candidates}
    assert asked == [1]


@pytest.mark.parametrize("kind", ERRORS)
def test_error_has_code_and_can_be_pickled(kind: type[AccelError]) -> None:
    error = kind("it failed", do="repair it", details="this\nand that")
    assert str(whole(error)) == f"it failed; repair it [{kind.code}]\n  this\n  and that"
    assert kind.__doc__
    if sys.version_info >= (3, 11) and kind is not AccelError:
        assert traceback.format_exception(error)[-1] == f"See: accel explain {error.code}\n"
