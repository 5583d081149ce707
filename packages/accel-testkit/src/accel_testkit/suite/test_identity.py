# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Identity: an accelerator in every method, by the names and call shapes that callers and stock DeepSpeed use."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from accel_core.device import DeviceModule, TorchDeviceAccelerator
from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import UPSTREAM
from accel_core.selection.current import ACCELERATOR_BASES
from accel_testkit.suite import op_builders
from accel_testkit.suite.expect import Holds, expect_equal, outcome
from accel_testkit.suite.needs import public_members
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("host")

_DERIVE = "derive from accel_core.TorchDeviceAccelerator, and call super().__init__()"
#: Functions of the runtime -> the method that calls it, where it has another name.
_CALLERS = {"default_generators": "default_generator", "mem_get_info": "available_memory"}
#: Methods whose arguments changed between the series; every form is called in test_pinned_memory.py.
_OF_TWO_FORMS = {"pin_memory"}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@pytest.fixture
def interface(upstream: Any) -> Any:
    """DeepSpeed's own abstract accelerator."""
    return importlib.import_module("deepspeed.accelerator.abstract_accelerator").DeepSpeedAccelerator


def test_runtime_has_every_function(accelerator: Any) -> None:
    """The module `torch.<type>`, or torch.accelerator, has all functions that the accelerator's class calls."""
    if not isinstance(accelerator, TorchDeviceAccelerator):
        pytest.skip("the class does not derive from TorchDeviceAccelerator")
    module, missing = accelerator.device_module, []
    for name in vars(DeviceModule):
        theirs, mine = (
            getattr(cls, _CALLERS.get(name, name), None)
            for cls in (TorchDeviceAccelerator, type(accelerator))
        )
        if not name.startswith("_") and theirs is not None and mine is theirs and not hasattr(module, name):
            missing.append(name)
    do = "add them to the runtime, or override the methods that call them; other failures may follow from these"
    expect_equal("which functions are missing", missing, [], do)


def test_is_an_accelerator(accelerator: Any) -> None:
    """The object derives from accel_core's DeepSpeedAccelerator, or from DeepSpeed's own."""
    bases = [base.__name__ for base in type(accelerator).__mro__]
    holds = Holds({f"accel_core's class is among {bases}": isinstance(accelerator, tuple(ACCELERATOR_BASES))})
    holds.expect("the accelerator", _DERIVE)


def test_can_be_constructed_again(target: Target, accelerator: DeepSpeedAccelerator) -> None:
    """A second object of the class works together with the first, for the same devices."""
    again, holds = target.construct(), Holds()
    holds["it is a new object"] = again is not accelerator
    holds.equal("its device_name()", again.device_name(), accelerator.device_name())
    do = "register runtimes once, at import; keep the constructor free of global state"
    holds.expect("a second object", do)


def test_has_every_method(accelerator: DeepSpeedAccelerator) -> None:
    """Every public name of the interface is there, and takes its arguments by position and by name."""
    holds = Holds({name: hasattr(accelerator, name) for name in public_members()})
    functions = {name: member for name, member in public_members().items() if inspect.isfunction(member)}
    _expect_call_shapes(accelerator, functions, holds)


def test_has_every_method_of_upstream(accelerator: DeepSpeedAccelerator, interface: Any) -> None:
    """Every public method of the installed DeepSpeed's interface is there, and can be called as it says."""
    methods = {
        name: member
        for name, member in inspect.getmembers(interface, inspect.isfunction)
        if not name.startswith("_") and name not in _OF_TWO_FORMS
    }
    _expect_call_shapes(accelerator, methods, Holds())


def _expect_call_shapes(accelerator: Any, functions: Mapping[str, Any], holds: Holds) -> None:
    for name, member in functions.items():
        problem = _signature_problem(member, getattr(accelerator, name, None))
        holds[problem or f"the call shape of {name}"] = not problem
    do = "copy the signature from the interface; further parameters are optional"
    holds.expect("an interface's method", do)


def _signature_problem(wanted: Any, method: Any) -> str:
    """Say which call of the function `wanted` a bound method does not accept; empty where it accepts all."""
    name = getattr(wanted, "__name__", str(wanted))
    if not callable(method):
        return f"{name} is {method!r}"
    asked = [p for p in list(inspect.signature(wanted).parameters.values())[1:] if p.kind not in _VARIADIC]
    try:
        given = inspect.signature(method)
    except (TypeError, ValueError):
        return ""  # a builtin without a signature
    try:
        given.bind(**{p.name: p for p in asked})
        given.bind(**{p.name: p for p in asked if p.default is inspect.Parameter.empty})
        by_name = {p.name: p for p in asked if p.kind not in _BY_POSITION}
        placed = given.bind(*(p for p in asked if p.kind in _BY_POSITION), **by_name).arguments
    except TypeError as error:
        return f"{name}: {error}"
    moved = [p.name for place, p in placed.items() if isinstance(p, inspect.Parameter) and p.name != place]
    # Given by position, these would go to *arguments, past the parameter of their name.
    others = [p for each in placed.values() if isinstance(each, tuple) for p in each]
    moved += [p.name for p in others if p.name in given.parameters]
    return f"{name}: another place has {', '.join(moved)}" if moved else ""


def test_name_is_the_torch_device_type(accelerator: DeepSpeedAccelerator) -> None:
    """`device_name()` is a device type that torch knows, and the type of `device()`."""
    holds, name = Holds(), accelerator.device_name()
    holds.equal("its type in torch", outcome(lambda: torch.device(name).type), name)
    holds.equal("the type of device()", outcome(lambda: torch.device(accelerator.device()).type), name)
    holds.expect(f"device_name() {name!r}", "use the name under which the runtime registers with torch")


def test_deepspeed_takes_it_for_its_accelerator(
    accelerator: DeepSpeedAccelerator, interface: Any, upstream: Any
) -> None:
    """It is an instance of DeepSpeed's own class; once set, `deepspeed.accelerator.get_accelerator()` is this object.

    DeepSpeed reads `_name` and `_communication_backend_name` without the methods.
    """
    holds, backend = Holds(), accelerator._communication_backend_name
    holds[f"it is an instance of {interface.__module__}.{interface.__name__}"] = isinstance(
        accelerator, interface
    )
    found = upstream.accelerator.get_accelerator()
    holds[f"get_accelerator() is {found!r}; is the bridge off (ACCEL_BRIDGE=0)?"] = found is accelerator
    holds.equal("_name", accelerator._name, accelerator.device_name())
    holds[f"_communication_backend_name is {backend!r}"] = isinstance(backend, str) and backend
    holds.expect("the accelerator of DeepSpeed", f"{_DERIVE}; see docs/upstream.md")


@pytest.mark.usefixtures("upstream")
def test_deepspeed_s_builders_are_this_device_s(accelerator: DeepSpeedAccelerator) -> None:
    """The builder names in `deepspeed.ops.op_builder`, and `ds_report`'s table, are of this accelerator's builders."""
    module, holds = importlib.import_module("deepspeed.ops.op_builder"), Holds()
    for name in UPSTREAM:
        if hasattr(module, name):
            found = type(getattr(module, name)())
            holds[f"{name} is {found}"] = found is type(accelerator.create_op_builder(name))
    listed = importlib.import_module("deepspeed.ops.op_builder.all_ops").ALL_OPS
    wanted = {accelerator.create_op_builder(name).name for name in op_builders.found_by_upstream(accelerator)}
    holds.equal("the ops in ds_report", sorted(listed), sorted(wanted))
    holds.expect(
        "the builders",
        "answer get_op_builder() and create_op_builder() alike, with the files of op_builder_dir()",
    )
