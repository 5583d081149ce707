# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Vendor packages whose entry point cannot be used: each is a candidate, none stops the others."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from accel_core.errors import AcceleratorBroken, StrictSelection
from accel_core.selection.candidates import State, discover
from accel_core.vendor import INTERFACE_VERSION

FAILURES = {
    "ImportError": "raise ImportError('libfoo.so.1: cannot open shared object file')",
    "ModuleNotFoundError": "import no_such_module_anywhere",
    "RuntimeError": "raise RuntimeError('driver too old')",
    "AssertionError": "assert not 'a version mismatch'",
    "AttributeError": "raise AttributeError(\"'NoneType' object has no attribute 'startswith'\")",
    "OSError": "raise OSError('libfoo.so.1: undefined symbol')",
    "FileNotFoundError": "open('/no/such/required_version.txt')",
    "SystemExit": "raise SystemExit('license expired')",
    "SyntaxError": "def",
    "KeyError": "raise KeyError('FOO_HOME')",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_vendor_that_fails_to_import_is_told_in_the_warning_of_the_fall_back(
    machine: Any, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    machine.install("npu", vendor=FAILURES[failure])
    assert machine.select().device_name() == "cpu"
    found = machine.candidate("npu")
    assert found.state is State.BROKEN
    assert "ACC-101" in found.reason
    assert f"{failure}: " in found.reason
    assert "accel-npu" in found.reason
    assert "Traceback" in found.error
    (warning,) = caplog.messages
    assert warning.startswith("Setting accelerator to CPU")
    assert found.reason in warning


def test_vendor_that_fails_to_import_does_not_stop_another(machine: Any) -> None:
    machine.install("npu", vendor=FAILURES["SystemExit"])
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"


def test_asking_for_a_vendor_that_fails_to_import_gives_its_failure(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu", vendor=FAILURES["OSError"])
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    error = machine.refused(AcceleratorBroken)
    assert error.what == "DS_ACCELERATOR=npu cannot be served: NPU_Accelerator requires torch_npu"
    assert "OSError: libfoo.so.1: undefined symbol" in error.found


def test_strict_refuses_to_run_beside_a_vendor_that_fails_to_import(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu", vendor=FAILURES["ImportError"])
    machine.install("mlu")
    monkeypatch.setenv("ACCEL_STRICT", "1")
    assert "libfoo.so.1" in machine.refused(StrictSelection).found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("VENDOR = None", "NoneType"),
        ("VENDOR = dict(key='npu')", "dict"),
        ("class VENDOR: key = 'npu'", "type"),
        ("from accel_core.vendor import Vendor as VENDOR", "type"),
    ],
)
def test_entry_point_that_is_not_a_vendor_is_named_with_its_type(machine: Any, text: str, kind: str) -> None:
    machine.install("npu", vendor=text)
    assert machine.select().device_name() == "cpu"
    assert f"fake_accel_npu.vendor:VENDOR is a {kind}" in machine.candidate("npu").reason


def test_entry_point_that_names_nothing_is_broken(machine: Any) -> None:
    machine.install("npu", vendor="THE_VENDOR = 1")
    assert machine.select().device_name() == "cpu"
    assert "has no attribute 'VENDOR'" in machine.candidate("npu").reason


@pytest.mark.parametrize("slip", ["priority='high'", "priority=None", "key=''", "key=None"])
def test_vendor_without_a_key_or_a_priority_is_broken_and_stops_nobody(machine: Any, slip: str) -> None:
    machine.install("npu", vendor=f"from accel_core.vendor import Vendor\nVENDOR = {_record(slip)}")
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    reason = machine.candidate("npu").reason
    assert "a vendor needs a key" in reason or "of the vendor 'npu' has to be an integer" in reason


def _record(slip: str) -> str:
    good = {"key": "'npu'", "priority": "700", "interface": "2"}
    name, _, value = slip.partition("=")
    fields = ", ".join(f"{field}={text}" for field, text in {**good, name: value}.items())
    return f"Vendor({fields}, accelerator='a:A', probe='p', distribution='accel-npu', requires='torch_npu')"


_RECORD = """\
from accel_core.vendor import Vendor

VENDOR = Vendor(key="npu", accelerator="a:A", probe="p", distribution="accel-npu", requires="torch_npu"{more})
"""

#: What makes a package one of another interface, and how it is named.
OTHER_INTERFACES = {
    "a number above": (_RECORD.format(more=", interface=7"), "is written for interface 7"),
    "a number below": (_RECORD.format(more=", interface=1"), "is written for interface 1"),
    "no number, from before it was required": (
        _RECORD.format(more=""),
        "is written for an interface whose Vendor record has other fields",
    ),
    "a field that is gone": (
        _RECORD.format(more=", interface=1, road='ipex'"),
        "is written for an interface whose Vendor record has other fields",
    ),
    "a module that is gone": (
        "from accel_core import known\n" + _RECORD.format(more=""),
        "is written for an interface that has what this one lacks",
    ),
    "a name that is not there yet": (
        "from accel_core.vendor import Vendor, Later\n",
        "is written for an interface that has what this one lacks",
    ),
}


@pytest.mark.parametrize("case", OTHER_INTERFACES)
def test_vendor_of_another_interface_is_named_with_both_sides(
    machine: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    vendor, written_for = OTHER_INTERFACES[case]
    machine.install("npu", vendor=vendor.replace("{", "{{").replace("}", "}}"))
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    reason = machine.candidate("npu").reason
    assert "ACC-102" in reason
    assert f"accel-npu 1.2 {written_for}" in reason
    assert "pip install --upgrade ./packages/accel-core ./packages/" in reason
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    machine.forget()
    assert f"accel-npu 1.2 {written_for}" in machine.refused(AcceleratorBroken).found


def test_vendor_of_another_interface_is_told_the_number_of_this_one(machine: Any) -> None:
    machine.install("npu", vendor=_RECORD.format(more=f", interface={INTERFACE_VERSION + 1}"))
    machine.select()
    error = machine.candidate("npu").error
    assert f"is written for interface {INTERFACE_VERSION + 1}" in error
    assert f"interface {INTERFACE_VERSION}, that of the installed accel-core" in error


def test_record_that_fails_by_a_mistake_of_its_own_is_not_taken_for_another_interface(machine: Any) -> None:
    machine.install("npu", vendor="import accel_corp\n")
    machine.install("mlu", vendor="int(None)\n")
    machine.select()
    for key in ("npu", "mlu"):
        assert "ACC-101" in machine.candidate(key).reason


def test_two_packages_for_one_key_are_both_named_and_neither_is_used(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu")
    machine.install("npu", package="other-npu")
    assert machine.select().device_name() == "cpu"
    reason = machine.candidate("npu").reason
    assert "ACC-103" in reason
    assert "accel-npu and other-npu" in reason
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    machine.forget()
    error = machine.refused(AcceleratorBroken)
    assert "accel-npu and other-npu" in error.found
    assert "requires torch_npu" in error.what


def test_one_entry_point_listed_twice_is_one_vendor(machine: Any) -> None:
    module = machine.install("npu")
    point = importlib.metadata.EntryPoint("npu", f"{module}.vendor:VENDOR", "accel.vendors")
    discovery = discover([point, point])
    assert [vendor.key for vendor in discovery.vendors] == ["npu"]
    assert not discovery.broken


def test_broken_package_stays_known_beside_a_good_one_with_its_key(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu")
    machine.install("npu", package="old-npu", vendor=FAILURES["OSError"])
    assert machine.select().device_name() == "npu"
    states = {
        candidate.package: candidate.state for candidate in machine.candidates() if candidate.key == "npu"
    }
    assert states == {"accel-npu": State.CHOSEN, "old-npu": State.BROKEN}
    monkeypatch.setenv("ACCEL_STRICT", "1")
    machine.forget()
    assert "old-npu" in machine.refused(StrictSelection).found


def test_broken_stranger_does_not_outrank_the_cpu(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine.install("dream", priority=5000, vendor=FAILURES["RuntimeError"])
    assert machine.select().device_name() == "cpu"
    assert "dream: broken: " in caplog.text
