# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The upstream contract: stock DeepSpeed takes the accelerator for one of its own."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import UPSTREAM
from accel_testkit.suite import ops
from accel_testkit.suite.call_signatures import signature_problem
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("host")

#: Methods whose arguments changed between the series; every form is called in test_pinned_memory.py.
_OF_TWO_FORMS = {"pin_memory"}


@pytest.fixture
def interface(upstream: Any) -> Any:
    """DeepSpeed's own abstract accelerator."""
    return importlib.import_module("deepspeed.accelerator.abstract_accelerator").DeepSpeedAccelerator


def test_deepspeed_takes_it_for_an_accelerator(accelerator: DeepSpeedAccelerator, interface: Any) -> None:
    """The object is an instance of DeepSpeed's own DeepSpeedAccelerator."""
    expect(
        isinstance(accelerator, interface),
        "DeepSpeed does not take it for an accelerator",
        found=f"{type(accelerator).__name__}, no instance of {interface.__module__}.{interface.__name__}",
        expected="an instance, derived or registered",
        do="derive from accel_core.DeepSpeedAccelerator",
    )


def test_deepspeed_uses_it(accelerator: DeepSpeedAccelerator, upstream: Any) -> None:
    """Once it is set, `deepspeed.accelerator.get_accelerator()` is this very object."""
    found = upstream.accelerator.get_accelerator()
    expect(
        found is accelerator,
        "DeepSpeed uses another accelerator",
        found=repr(found),
        expected=repr(accelerator),
        do="see docs/upstream.md: is the bridge switched off (ACCEL_BRIDGE=0)?",
    )


def test_has_every_method_of_upstream(accelerator: DeepSpeedAccelerator, interface: Any) -> None:
    """Every public method of the installed DeepSpeed's interface is there, and can be called as it says."""
    methods = {
        name: member
        for name, member in inspect.getmembers(interface, inspect.isfunction)
        if not name.startswith("_") and name not in _OF_TWO_FORMS
    }
    problems = [
        text
        for name, member in methods.items()
        if (text := signature_problem(member, getattr(accelerator, name, None)))
    ]
    expect(
        not problems,
        "methods of the installed DeepSpeed's interface are missing or refuse its arguments",
        found="; ".join(problems),
        expected="upstream's names and parameters",
        do="derive from accel_core.TorchDeviceAccelerator, and keep upstream's parameter names",
    )


def test_deepspeed_s_builders_are_this_device_s(accelerator: DeepSpeedAccelerator, upstream: Any) -> None:
    """The builder names in `deepspeed.ops.op_builder` give this accelerator's builders."""
    module = importlib.import_module("deepspeed.ops.op_builder")
    names = [name for name in UPSTREAM if hasattr(module, name)]
    foreign = [
        name
        for name in names
        if type(getattr(module, name)()) is not type(accelerator.create_op_builder(name))
    ]
    expect(
        not foreign,
        "DeepSpeed builds the ops of another device",
        found=", ".join(foreign),
        expected="the classes of get_op_builder()",
        do="answer get_op_builder() and create_op_builder() alike",
    )


def test_op_report_lists_the_table(accelerator: DeepSpeedAccelerator, upstream: Any) -> None:
    """`ds_report`'s table is made of the builders in `op_builder_dir()`."""
    listed = importlib.import_module("deepspeed.ops.op_builder.all_ops").ALL_OPS
    expected = {accelerator.create_op_builder(name).name for name in ops.found_by_upstream(accelerator)}
    expect(
        set(listed) == expected,
        "ds_report lists other ops",
        found=", ".join(sorted(listed)),
        expected=", ".join(sorted(expected)),
        do="define each builder in a file of op_builder_dir(), under upstream's class name",
    )


def test_interface_attributes_are_set(accelerator: DeepSpeedAccelerator) -> None:
    """`_name` and `_communication_backend_name` are set: DeepSpeed reads them without the methods."""
    found = (accelerator._name, accelerator._communication_backend_name)
    expect(
        found[0] == accelerator.device_name() and isinstance(found[1], str) and found[1],
        "attributes that DeepSpeed reads are not set",
        found=repr(found),
        expected="device_name() and the collective backend's name",
        do="call super().__init__()",
    )
