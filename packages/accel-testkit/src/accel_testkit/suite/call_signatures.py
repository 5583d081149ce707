# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether a method accepts the arguments that callers of the interface pass."""

from __future__ import annotations

import inspect
from typing import Any

from accel_core.interface import DeepSpeedAccelerator

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def public_members() -> dict[str, Any]:
    """Return the interface's own public members, by name, in alphabetical order."""
    classes = [
        cls for cls in DeepSpeedAccelerator.__mro__ if cls.__module__.startswith("accel_core.interface")
    ]
    members = {name: member for cls in reversed(classes) for name, member in vars(cls).items()}
    return {
        name: members[name] for name in sorted(members) if not name.startswith("_") and name != "host_pins"
    }


def signature_problem(wanted: Any, method: Any, *, bound: bool = False) -> str:
    """Say which call of the function `wanted` a bound method does not accept; empty where it accepts all.

    bound: `wanted` has no self parameter.
    """
    name = getattr(wanted, "__name__", str(wanted))
    if not callable(method):
        return f"{name} is {method!r}"
    asked = list(inspect.signature(wanted).parameters.values())[0 if bound else 1 :]
    try:
        given = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return ""  # a builtin without a signature
    problem = _refused(asked, given) or _demanded(asked, given)
    return f"{name}: {problem}" if problem else ""


def _refused(asked: list[inspect.Parameter], given: Any) -> str:
    positions = [p.name for p in given.values() if p.kind in _BY_POSITION]
    takes_any_name = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in given.values())
    takes_any_number = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in given.values())
    for index, parameter in enumerate(asked):
        name = parameter.name
        if parameter.kind in _VARIADIC or (name not in given and takes_any_name and takes_any_number):
            continue
        if name not in given:
            return f"takes no {name}"
        if parameter.kind in _BY_POSITION and positions[index : index + 1] != [name]:
            return f"{name} is not argument {index + 1}"
        optional = parameter.default is not inspect.Parameter.empty
        if optional and given[name].default is inspect.Parameter.empty:
            return f"{name} has no default"
    return ""


def _demanded(asked: list[inspect.Parameter], given: Any) -> str:
    known = {parameter.name for parameter in asked}
    for parameter in given.values():
        required = parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIADIC
        if required and parameter.name not in known:
            return f"demands {parameter.name}"
    return ""
