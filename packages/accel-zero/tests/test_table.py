# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Methods of DeepSpeed are replaced only where their source is known, and can be switched off."""

import dataclasses
import functools
import importlib.metadata
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from accel_core import env
from accel_core.vendor import deepspeed_folder
from accel_zero import fast_writer, method_patch, table
from accel_zero.method_patch import MethodPatch, PatchState

pytestmark = pytest.mark.upstream
_TOY = """
import dataclasses
import functools
class Base:
    def work(self): return "stock of another class"
class Optimizer:
    @staticmethod
    def other(): return 0
    def work(self, value):
        return ("stock", value)
    def relied(self):
        return 1
    def __hidden(self, value): return ("stock", value)
    def calls(self, value): return self.__hidden(value)
"""
_NAMES = list(dict.fromkeys(row.name for row in table.SPEEDUPS))
needs_all = pytest.mark.skipif(
    Version(importlib.metadata.version("deepspeed")) != Version("0.19.8"),
    reason="not run: deepspeed 0.19.8, of which all methods are replaced",
)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module in the place of DeepSpeed's."""
    folder = tmp_path / "toyspeed"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "zero.py").write_text(_TOY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("toyspeed.zero")
    for name in ("toyspeed", "toyspeed.zero"):
        sys.modules.pop(name, None)


def _speedup(replaced: str = "work", releases: str = ">=0", **changed: str) -> MethodPatch:
    known = {
        "work": 'def work(self, value):\n    return ("stock", value)',
        "relied": "def relied(self):\n    return 1",
        "__hidden": 'def __hidden(self, value): return ("stock", value)',
    } | changed
    rows = tuple(
        (name, method_patch.fingerprint(source), "method_patch:of_toy" if name == replaced else "")
        for name, source in known.items()
    )
    return MethodPatch("toy", "toyspeed.zero:Optimizer", rows, "it is faster", releases)


@pytest.fixture(autouse=True)
def _replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(stock: Any, self: Any, value: int) -> Any:
        return "ours" if value else stock(self, value)

    monkeypatch.setattr(method_patch, "of_toy", replaced, raising=False)


@pytest.mark.parametrize(("replaced", "called"), [("work", "work"), ("__hidden", "calls")])
def test_a_known_method_is_replaced_and_put_back(toy, replaced, called):
    assert method_patch.apply(_speedup(replaced), toy).on
    call = getattr(toy.Optimizer(), called)
    assert (call(1), call(0)) == ("ours", ("stock", 0))
    assert toy.Base().work() == "stock of another class"
    table.restore(toy, [_speedup(replaced)])
    assert getattr(toy.Optimizer(), called)(1) == ("stock", 1)


def test_value_and_function_are_put_back(toy, monkeypatch):
    toy.SWITCH = toy.function = stock = lambda: None
    known = method_patch.fingerprint("def bound(): pass")
    monkeypatch.setattr(method_patch, "_loaded_source", lambda *_: "def bound(): pass")
    rows = (("function", known, "method_patch:of_toy"),)
    row = MethodPatch(
        "toy", "toyspeed.zero", rows, "", ">=0", (("SWITCH", "method_patch:fingerprint_of_toy"),)
    )
    monkeypatch.setattr(method_patch, "fingerprint_of_toy", lambda value: [value], raising=False)
    for _ in range(2):
        assert method_patch.apply(row, toy).on
        assert [stock] == toy.SWITCH
        assert toy.function is not stock
        table.restore(toy, [row])
        assert toy.SWITCH is toy.function is stock


@pytest.mark.parametrize(
    ("row", "reported"),
    [
        (_speedup(work="def other(self): pass"), "work"),
        (_speedup(relied="def other(self): pass"), "relied"),
        (_speedup(gone="def gone(self): pass"), "gone"),
        (_speedup("gone", gone="def gone(self): pass"), "gone"),
        (_speedup(releases="<0.1"), "outside <0.1"),
    ],
)
def test_unknown_source_or_release_is_left_alone(toy, row, reported, caplog):
    with caplog.at_level(logging.DEBUG, "accel_core"):
        status = method_patch.apply(row, toy)
    assert not status.on
    assert reported in status.reason
    assert toy.Optimizer().work(1) == ("stock", 1)
    (line,) = caplog.messages
    assert "toy" in line
    assert reported in line
    table.restore(toy, [row])
    assert not hasattr(toy.Optimizer, "gone")


def test_a_method_that_someone_has_wrapped_is_left_alone(toy):
    stock = toy.Optimizer.work
    toy.Optimizer.work = functools.wraps(stock)(lambda *arguments: stock(*arguments))
    assert not method_patch.apply(_speedup(), toy).on


@pytest.mark.parametrize(
    ("value", "on"), [("0", False), ("1", True), ("other, toy", False), ("other", True), ("", True)]
)
def test_the_variable_switches_off(toy, monkeypatch, value, on):
    monkeypatch.setenv("ACCEL_SPEEDUPS", value)
    assert method_patch.apply(_speedup(), toy).on is on


def test_unknown_names_are_reported(monkeypatch, caplog):
    monkeypatch.setenv("ACCEL_SPEEDUPS", "zero2-step, zero9, checkpoint-writer")
    monkeypatch.setenv("ACCEL_FIXES", "pipe-seeds, zero2-step")
    table._warn_of_unknown_names.__wrapped__()
    expected = ["ACCEL_SPEEDUPS has an unknown name 'zero9'", "ACCEL_FIXES has an unknown name 'zero2-step'"]
    assert [message.partition(";")[0] for message in caplog.messages] == expected


def test_fix_replaces_method_in_tables_of_class(toy, monkeypatch):
    toy.Optimizer.TABLE = {"key": toy.Optimizer.work, "other": 1}
    fix = dataclasses.replace(_speedup(), switch=env.FIXES)
    monkeypatch.setenv("ACCEL_FIXES", "toy")
    assert "ACCEL_FIXES=toy" in method_patch.apply(fix, toy).reason
    monkeypatch.setenv("ACCEL_FIXES", "1")
    monkeypatch.setenv("ACCEL_SPEEDUPS", "0")
    assert method_patch.apply(fix, toy).on
    assert toy.Optimizer.TABLE["key"] is toy.Optimizer.work
    assert toy.Optimizer.TABLE["key"](toy.Optimizer(), 1) == "ours"


def test_fix_needs_all_its_classes():
    rows = [dataclasses.replace(_speedup(), target=f"module:{name}") for name in ("A", "A", "B")]
    states = iter([(False, "another source"), (True, ""), (False, "switched off")])
    (status,) = table._in_order(rows, lambda row: PatchState(row.name, *next(states)))
    assert not status.on
    assert status.reason == "switched off"


@needs_all
def test_what_needs_a_speedup_that_is_off_is_off(monkeypatch):
    monkeypatch.setenv("ACCEL_SPEEDUPS", "zero2-gradients")
    states = {name: (on, reason) for name, on, reason, kind in table.examined() if kind == "speed-ups"}
    assert list(states) == _NAMES
    assert "needs zero2-gradients" in states["zero2-step"][1]
    assert [name for name in _NAMES if not states[name][0]] == ["zero2-gradients", "zero2-step"]


_STATE = """
import importlib, json, torch, deepspeed
from importlib.metadata import version
from accel_core.vendor import in_range
from accel_zero import method_patch, table
STOCK = {"torch": torch, "get_accelerator": deepspeed.accelerator.get_accelerator}
def replaced(row):
    module = importlib.import_module(row.module)
    names = [method_patch.attribute_of(row.cls, name) for name, _, replacement in row.methods if replacement]
    methods = [vars(row.owner_in(module))[name] for name in names if name in vars(row.owner_in(module))]
    return all(hasattr(each, "_accel_stock") for each in methods) and all(
        getattr(module, name) is not STOCK.get(name) for name, _ in row.values)
states = list(table.examined())
rows = [row for row in table.TABLE if in_range(version("deepspeed"), row.releases)]
found = sorted({row.name for row in rows} - {row.name for row in rows if not replaced(row)})
reasons = {name: reason for name, on, reason, _ in states if not on}
print(json.dumps([deepspeed.__file__, found, sorted(name for name, on, *_ in states if on), reasons]))
"""


@needs_all
@pytest.mark.parametrize(
    ("file", "line", "lost"),
    [
        ("", "", set()),
        ("stage_1_and_2", "self.local_overflow = True\n", {"zero2-gradients", "zero2-step"}),
    ],
    ids=["same sources", "changed"],
)
@pytest.mark.sample("same*")
def test_later_release_loses_changed_speedups_only(children, tmp_path, file, line, lost):
    location = deepspeed_folder()
    assert location is not None
    site = tmp_path / "site"
    copied = site / "deepspeed"
    shutil.copytree(location, copied, ignore=shutil.ignore_patterns("__pycache__", "*.cu", "*.cpp", "*.h"))
    (site / "deepspeed-0.19.9.dist-info").mkdir()
    (site / "deepspeed-0.19.9.dist-info/METADATA").write_text("Name: deepspeed\nVersion: 0.19.9\n", "utf-8")
    if file:
        source = copied / "runtime" / "zero" / f"{file}.py"
        text = source.read_text("utf-8")
        planted = text.replace(line, f"{line.rstrip()}  # planted\n", 1)
        assert planted != text
        source.write_text(planted, encoding="utf-8")

    where, replaced, examined, reasons = children.on(site).run(_STATE, DS_ACCELERATOR="cpu").report
    assert where.startswith(str(copied))
    assert replaced == examined
    assert {*_NAMES} - {*replaced} == lost
    assert reasons.keys() == lost
    assert all("has another source" in text or "needs zero2-gradients" in text for text in reasons.values())


def test_fast_writer_numbers_the_host():
    mpich = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    for environ, host in ((mpich, ("1", "2")), (dict[str, str](), ("0", "1"))):
        fast_writer._name_host(environ)
        assert (environ["CROSS_RANK"], environ["CROSS_SIZE"]) == host
