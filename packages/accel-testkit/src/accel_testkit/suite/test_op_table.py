# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The op table: every op of DeepSpeed loads with upstream's functions, or is refused with its reason."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import UPSTREAM
from accel_core.vendor import Traits
from accel_testkit.suite import needs, op_builders
from accel_testkit.suite.expect import Holds, outcome
from accel_testkit.suite.ops import SPECS
from accel_testkit.suite.ops.inference import CORE, TRANSFORMER

pytestmark = pytest.mark.tier("host")

_NO_OP = "NoSuchOpBuilder"
_STARTERS = [(subprocess.Popen, "__init__"), (os, "system"), (os, "posix_spawn"), (os, "fork")]


def test_package_of_builders_can_be_imported(accelerator: DeepSpeedAccelerator) -> None:
    """`op_builder_dir()` names a package whose files can all be imported, with a class for each op that is served."""
    holds, found = Holds(), outcome(lambda: op_builders.found_by_upstream(accelerator))
    for op in op_builders.served(accelerator):
        holds[f"{accelerator.op_builder_dir()} has {op}: {found!r:.300}"] = op in found
    do = "import toolchains and runtimes inside load(), and name the package of the op table"
    holds.expect("the package that op_builder_dir() names", do)


def test_subclass_has_the_ops_of_its_class(accelerator: DeepSpeedAccelerator) -> None:
    """A class that a user derives somewhere else has the ops, and the package of builders, of the vendor's class."""
    derived = type("Derived", (type(accelerator),), {"__module__": __name__})()
    holds = Holds()
    holds.equal("op_builder_dir()", derived.op_builder_dir(), accelerator.op_builder_dir())
    for name in (*UPSTREAM, _NO_OP):
        holds[f"the same {name}"] = derived.get_op_builder(name) is accelerator.get_op_builder(name)
    what = "the ops of a derived class"
    holds.expect(what, "name the package of builders, and do not derive it from the class of self")


def test_unknown_op_is_refused(accelerator: DeepSpeedAccelerator) -> None:
    """An op that nobody has gets a builder that is not compatible and whose `load` raises with the op's name."""
    builder, holds = accelerator.create_op_builder(_NO_OP), Holds()
    missing = builder is not None and op_builders.is_missing(builder)
    holds[f"{builder!r} has the NAME {op_builders.NOT_IMPLEMENTED!r}"] = missing
    holds.equal("is_compatible()", outcome(lambda: builder.is_compatible()), False)
    holds.expect("the builder of an unknown op", "return accel_core.NotImplementedBuilder")
    holds.raises(ValueError, "load()", builder.load)
    device, text = accelerator.device_name(), str(outcome(builder.load)).partition(": ")[2]
    first = text.partition("\n")[0]
    holds[f"{_NO_OP}, then {device}: {first}"] = 0 <= first.find(_NO_OP) < first.find(device)
    for name in {*UPSTREAM} & op_builders.served(accelerator).keys():
        holds[f"it names {name}"] = name in text
    holds.expect("the error of an unknown op", "raise accel_core's OpNotImplemented")


def test_missing_ops_have_reasons(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """Each op of DeepSpeed that the device lacks has a trait, and `load` raises with the trait's reason."""
    holds = Holds()
    for name in UPSTREAM:
        builder = accelerator.create_op_builder(name)
        if builder is None or op_builders.is_missing(builder):
            holds.raises(ValueError, f"load() of {name}", lambda: builder.load())  # noqa: B023
            reason = traits[name].reason if name in traits else ""
            error = str(outcome(lambda: builder.load()))  # noqa: B023
            holds[f"load() of {name} raises the reason of its trait, {reason!r}: {error}"] = (
                reason and reason in error
            )
    holds.expect("a missing op", "write the reasons into traits.py: users and the feature table read them")


def test_asking_for_compatibility_is_harmless(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_compatible` answers with a bool, raises nothing and starts no process: `import deepspeed` asks them all."""
    builders = {name: accelerator.create_op_builder(name) for name in UPSTREAM}
    started: list[str] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        started.append(str(args[-1] if args else kwargs))
        raise OSError("the conformance suite lets no process be started here")

    for place, attribute in _STARTERS:
        monkeypatch.setattr(place, attribute, refuse)
    holds = Holds()
    for name, builder in builders.items():
        answers = [outcome(lambda: builder.is_compatible(**asked)) for asked in ({}, {"verbose": False})]  # noqa: B023
        holds[f"{name} answers with a bool: {answers}"] = all(type(answer) is bool for answer in answers)
        holds[f"{name} starts nothing: {started}"] = not started
    do = "derive the builder from accel_core.OpBuilder and write compatibility()"
    holds.expect("asking whether an op is compatible", do)


def test_builders_tell_about_themselves(accelerator: DeepSpeedAccelerator) -> None:
    """Every builder that DeepSpeed finds exists, has a distinct name and a build variable, and gives reasons."""
    builders = dict.fromkeys(op_builders.found_by_upstream(accelerator)) | op_builders.served(accelerator)
    names = [builder.name for builder in op_builders.served(accelerator).values()]
    holds = Holds()
    for name, served in builders.items():
        builder = served or accelerator.create_op_builder(name)
        holds[f"{name} is found, and create_op_builder() gives it"] = builder is not None
        texts = (
            getattr(builder, "name", ""), outcome(lambda: builder.absolute_name()),  # noqa: B023
            getattr(builder, "BUILD_VAR", ""), getattr(builder, "reason", "-"),
        )  # fmt: skip
        whole = all(isinstance(text, str) and text for text in texts)
        holds[f"name, absolute_name(), BUILD_VAR and reason of {name} are texts: {texts}"] = whole
        holds[f"{name} shares its name {texts[0]}"] = names.count(texts[0]) <= 1
    do = "set NAME and BUILD_VAR as upstream's builder does; `ds_report` and `accel doctor` print them"
    holds.expect("a builder", do)


def _functions() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for spec in SPECS:
        found.setdefault(spec.builder, []).append(spec.function + "_fp32" * spec.typed)
    return {name: tuple(functions) for name, functions in found.items()}


#: Upstream's functions of each op, by the class name of the builder.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    **_functions(),
    "CPUAdamBuilder": ("create_adam", "adam_update", "destroy_adam"),
    "CPUAdagradBuilder": ("create_adagrad", "adagrad_update", "destroy_adagrad"),
    "CPULionBuilder": ("create_lion", "lion_update", "destroy_lion"),
    "UtilsBuilder": ("flatten", "unflatten"),
    "PinMemoryBuilder": ("pin_handle",),
    "InferenceBuilder": TRANSFORMER,
    "InferenceCoreBuilder": CORE,
    "AsyncIOBuilder": ("aio_handle", "aio_read", "aio_write"),
}
#: Builders of releases before 0.19.
_FORMER = {"PackbitsBuilder": SimpleNamespace(NAME="pack_bits", BUILD_VAR="DS_BUILD_PACK_BITS")}


@pytest.mark.tier("device")
@pytest.mark.parametrize("name", needs.ops(UPSTREAM))
def test_compatible_op_loads(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`is_compatible()` and `load()` agree: the op loads, twice and from two builders, or both say no."""
    builder = accelerator.create_op_builder(name)
    compatible, holds = builder.is_compatible(), Holds()
    for each in (builder, builder, accelerator.create_op_builder(name)):
        op = outcome(each.load)
        loads = not isinstance(op, str)  # which is that of an exception
        holds[f"is_compatible() is {compatible}, and load() gives {op!r:.500}"] = loads == compatible
        for function in FUNCTIONS.get(name, ()) if loads else ():
            holds[f"it has {function}"] = _has(op, function)
    holds.equal("is_compatible() after load()", builder.is_compatible(), compatible)
    holds.expect(name, "answer compatibility() from what load() needs, which has upstream's functions")


def _has(op: Any, name: str) -> bool:
    try:
        return callable(getattr(op, name))
    except Exception:
        return False


@pytest.mark.tier("device")
def test_unknown_functions_are_missing(accelerator: DeepSpeedAccelerator) -> None:
    """A function that no op has is an AttributeError, also with a float type's ending: DeepSpeed then uses its own."""
    holds = Holds()
    for name, builder in op_builders.served(accelerator).items():
        op = builder.load() if builder.is_compatible() else None
        for function in ("no_such_function", "no_such_function_fp16", "_no_such_function"):
            try:
                holds[f"{name}.{function} is not {getattr(op, function)!r}"] = False
            except AttributeError as error:
                if isinstance(error, AccelError):
                    what = f"{name}.{function}: it says that {builder.NAME} lacks it: {error.message}"
                    holds[what] = error.message.startswith(f"{builder.NAME} ")
            except Exception as error:
                holds[f"{name}.{function}: AttributeError, and no {type(error).__name__}: {error}"] = False
    holds.expect("an op", "derive it from accel_core.op_builder.OpFunctions, or do not answer every name")


@pytest.mark.parametrize("name", [*UPSTREAM, _NO_OP])
def test_builders_are_new(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`create_op_builder` gives a new builder at each call, of the one class that `get_op_builder` gives.

    For a name that no op has `get_op_builder` may return None, as DeepSpeed's class for CUDA does.
    """
    builders = [accelerator.create_op_builder(name) for _ in range(2)]
    given = {accelerator.get_op_builder(name) for _ in range(2)}
    classes = (given - (set() if name in UPSTREAM else {None})) | {type(builder) for builder in builders}
    holds = Holds({f"two objects: {builders}": builders[0] is not builders[1]})
    holds[f"one class: {classes}"] = len(classes) == 1
    holds.expect(f"the builder {name!r}", "construct the class at each call, and keep one class for each op")


@pytest.mark.tier("device")
@pytest.mark.parametrize("name", UPSTREAM)
def test_a_probe_that_fails_is_a_reason(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A builder may be given another name, and an exception in its probe makes it incompatible, with the reason."""
    base = accelerator.get_op_builder(name)
    if not hasattr(base, "compatibility"):
        pytest.skip("DeepSpeed's own builder")

    def compatibility(self: Any) -> tuple[bool, str]:
        raise LookupError("no such toolkit")

    builder = type(base.__name__, (base,), {"compatibility": compatibility})("renamed")
    holds = Holds()
    holds.equal("name", builder.name, "renamed")
    holds.equal("is_compatible()", builder.is_compatible(), False)
    for part in ("LookupError", "no such toolkit"):
        holds[f"the reason has {part}: {builder.reason!r}"] = part in builder.reason
    what = f"{name} with a probe that fails"
    holds.expect(what, "derive it from accel_core.op_builder.OpBuilder, and override `compatibility` alone")


@pytest.mark.usefixtures("upstream")
def test_names_are_upstream_s(accelerator: DeepSpeedAccelerator) -> None:
    """A builder has the NAME and the BUILD_VAR of DeepSpeed's own builder: the engine and users look for these."""
    holds = Holds()
    for name, stock in {**_FORMER, **_stock_builders()}.items():
        builder = accelerator.create_op_builder(name)
        if not op_builders.is_missing(builder):
            found = [getattr(builder, key, "") for key in ("NAME", "BUILD_VAR", "name")]
            own, variable = (getattr(stock, key, "") for key in ("NAME", "BUILD_VAR"))
            holds.equal(f"names of {name}", found, [own, variable, own])
    holds.expect("a builder's name", "copy NAME and BUILD_VAR from deepspeed/ops/op_builder")


def _stock_builders() -> dict[str, Any]:
    """DeepSpeed's own builder classes, by name, from the modules that define them."""
    import pkgutil

    package = importlib.import_module("deepspeed.ops.op_builder")
    stock = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg or info.name in ("all_ops", "builder"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name in UPSTREAM:
            cls = getattr(module, name, None)
            if getattr(cls, "__module__", "") == module.__name__:
                stock[name] = cls
    return stock


def test_extension_command_takes_options(accelerator: DeepSpeedAccelerator) -> None:
    """`build_extension()` is a setuptools command class; DeepSpeed's setup.py calls `with_options(use_ninja=False)`."""
    command = accelerator.build_extension()
    options = getattr(command, "with_options", None)
    made = options(use_ninja=False) if callable(options) else None
    holds = Holds({f"{command!r} is a class": inspect.isclass(command)})
    for part, name in ((command, "run"), (made, "initialize_options"), (made, "run")):
        holds[f"{part!r} has {name}()"] = callable(getattr(part, name, None))
    holds.expect("build_extension()", "return torch.utils.cpp_extension.BuildExtension, or a derived class")
