# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The op table: every op of DeepSpeed is served or refused with its reason, without a crash on the way."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import UPSTREAM
from accel_core.vendor import Traits
from accel_testkit.suite import ops
from accel_testkit.suite.expect import Holds, expect, expect_raises, outcome

pytestmark = pytest.mark.tier("host")

_NO_OP = "NoSuchOpBuilder"
_STARTERS = [(subprocess.Popen, "__init__"), (os, "system"), (os, "posix_spawn"), (os, "fork")]


def _expect_none(
    names: Iterable[str], problem: Callable[[str], str], what: str, expected: str, do: str
) -> None:
    """Fail the check if a name has a problem; an exception is one."""
    texts = {name: outcome(partial(problem, name)) for name in names}
    found = "; ".join(f"{name}: {text}" for name, text in texts.items() if text)
    expect(not found, what, found=found, expected=expected, do=do)


def test_package_of_builders_can_be_imported(accelerator: DeepSpeedAccelerator) -> None:
    """`op_builder_dir()` names a package whose files can all be imported, with a class for each op that is served."""

    def problem(name: str) -> str:
        found = ops.found_by_upstream(accelerator)
        missing = [op for op in ops.served(accelerator) if op not in found]
        return f"lacks {', '.join(missing)}" if missing else ""

    _expect_none(
        [accelerator.op_builder_dir()],
        problem,
        "op_builder_dir() names no importable package with the device's builders",
        "a package, each file of which can be imported on a machine without compiler or device",
        "import toolchains and runtimes inside load(), and name the package of the op table",
    )


def test_subclass_has_the_ops_of_its_class(accelerator: DeepSpeedAccelerator) -> None:
    """A class that a user derives somewhere else has the ops, and the package of builders, of the vendor's class."""
    derived = type("Derived", (type(accelerator),), {"__module__": __name__})()
    holds = Holds()
    holds.equal("op_builder_dir()", derived.op_builder_dir(), accelerator.op_builder_dir())
    for name in (*UPSTREAM, _NO_OP):
        holds[f"the same {name}"] = derived.get_op_builder(name) is accelerator.get_op_builder(name)
    what = "the ops of a derived class"
    holds.expect(what, "name the package of builders, and do not derive it from the class of self")


def _in_table(accelerator: DeepSpeedAccelerator) -> list[str]:
    """The ops that the device has; one whose builder cannot be asked for is another check's subject."""
    found = []
    for name in UPSTREAM:
        with contextlib.suppress(Exception):
            found += [] if ops.is_missing(accelerator.create_op_builder(name)) else [name]
    return found


def test_unknown_op_is_refused(accelerator: DeepSpeedAccelerator) -> None:
    """An op that nobody has gets a builder that is not compatible and whose `load` raises with the op's name."""
    builder, holds = accelerator.create_op_builder(_NO_OP), Holds()
    missing = builder is not None and ops.is_missing(builder)
    holds[f"{builder!r} has the NAME {ops.NOT_IMPLEMENTED!r}"] = missing
    holds.equal("is_compatible()", outcome(lambda: builder.is_compatible()), False)
    holds.expect("the builder of an unknown op", "return accel_core.NotImplementedBuilder")
    error = expect_raises(
        ValueError,
        builder.load,
        "the builder of an unknown op loads",
        do="raise accel_core's OpNotImplemented",
    )
    device, text = accelerator.device_name(), str(error)
    first = text.partition("\n")[0]
    holds[f"{_NO_OP}, then {device}: {first}"] = 0 <= first.find(_NO_OP) < first.find(device)
    for name in _in_table(accelerator):
        holds[f"it names {name}"] = name in text
    holds.expect("the error of an unknown op", "raise accel_core's OpNotImplemented")


def test_missing_ops_have_reasons(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """Each op of DeepSpeed that the device lacks has a trait, and `load` raises with the trait's reason."""

    def problem(name: str) -> str:
        builder = accelerator.create_op_builder(name)
        if not ops.is_missing(builder):
            return ""
        if name not in traits:
            return "no trait"
        try:
            builder.load()
        except ValueError as error:
            return "" if traits[name].reason in str(error) else f"load() says {error}"
        return "load() raises nothing"

    _expect_none(
        UPSTREAM,
        problem,
        "missing ops have no reason",
        "a trait under the builder's name, and its reason in the error of load()",
        "write the reasons into traits.py: users and the feature table read them",
    )


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

    def problem(name: str) -> str:
        answers = [builders[name].is_compatible(), builders[name].is_compatible(verbose=False)]
        if started:
            return f"starts {started.pop()}"
        return "" if all(type(answer) is bool for answer in answers) else f"answers {answers[0]!r}"

    _expect_none(
        builders,
        problem,
        "asking whether an op is compatible has consequences",
        "True or False, from what can be seen without starting anything",
        "derive the builder from accel_core.OpBuilder and write compatibility()",
    )


def test_builders_tell_about_themselves(accelerator: DeepSpeedAccelerator) -> None:
    """Every builder that DeepSpeed finds exists, has a distinct name and a build variable, and gives reasons."""
    builders = dict.fromkeys(ops.found_by_upstream(accelerator)) | ops.served(accelerator)
    names = [builder.name for builder in ops.served(accelerator).values()]

    def problem(name: str) -> str:
        builder = builders[name] or accelerator.create_op_builder(name)
        if builder is None:
            return "is found, and create_op_builder() gives None"
        texts = (builder.name, builder.absolute_name(), builder.BUILD_VAR, getattr(builder, "reason", "-"))
        if not all(isinstance(text, str) and text for text in texts):
            return f"name, absolute_name(), BUILD_VAR, reason are {texts}"
        return "shares its name" if names.count(builder.name) > 1 else ""

    _expect_none(
        builders,
        problem,
        "builders do not tell what they are",
        "texts, none empty; `ds_report` and `accel doctor` print them",
        "set NAME and BUILD_VAR as upstream's builder does",
    )
