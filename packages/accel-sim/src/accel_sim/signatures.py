# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Give simulated functions the parameters of the real ones: names, defaults, and no others."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Any

from accel_sim.errors import raise_not_simulated
from accel_sim.surface import Name


def read(entry: Name) -> Signature | None:
    """Return the signature of a surface's function or class, without self and cls; None where it is unknown."""
    text = entry.signature or ""
    if entry.kind not in ("function", "class", "method") or not text.startswith("(") or "..." in text:
        return None  # not known in Python's words; an operator's schema is C++'s
    definition: Any = ast.parse(f"def f{text}: pass").body[0]
    try:
        return Signature(list(_parameters(definition.args)))
    except ValueError:  # a default that is no literal
        return None


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    for argument, default in zip(plain, defaults, strict=True):
        if argument.arg not in ("self", "cls"):
            yield Parameter(argument.arg, Parameter.POSITIONAL_OR_KEYWORD, default=_value(default))
    if arguments.vararg:
        yield Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(argument.arg, Parameter.KEYWORD_ONLY, default=_value(default))
    if arguments.kwarg:
        yield Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD)


def of(function: Any) -> Signature:
    """Return the signature of a callable, without annotations."""
    found = inspect.signature(function)
    parameters = [parameter.replace(annotation=Parameter.empty) for parameter in found.parameters.values()]
    return Signature(parameters)


def as_real(value: Any, entry: Name, full: str) -> Any:
    """Return a simulated function or class with the real one's parameters.

    full: its name in the real module. Values are handed on by position, so what is simulated may name its
    parameters as it likes, and lack the last ones: those then have to keep their defaults. A class is changed in
    place.
    """
    real = read(entry)
    if real is None or not callable(value) or of(value) == real:
        return value
    if entry.kind == "class":
        _narrow(value, real, full)
        return value
    return _taking(real, value, full)


def _value(default: ast.expr | None) -> Any:
    return Parameter.empty if default is None else ast.literal_eval(default)


def _taking(real: Signature, function: Callable[..., Any], full: str, *, bound: bool = False) -> Any:
    count = _positional_count(function) - bound
    beyond = [p for p in list(real.parameters.values())[count:] if p.kind == Parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        own, given = (arguments[:1], arguments[1:]) if bound else ((), arguments)
        taken = real.bind(*given, **options)
        taken.apply_defaults()
        for parameter in beyond:
            if taken.arguments[parameter.name] != parameter.default:
                raise_not_simulated(f"{full}({parameter.name}=…)")
        return function(*own, *taken.args[:count], **taken.kwargs)

    if not bound:
        call.__signature__ = real  # type: ignore[attr-defined]
    return call


def _positional_count(function: Callable[..., Any]) -> int:
    """Return how many arguments it takes by position; a number beyond any signature for `*args`."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind == Parameter.VAR_POSITIONAL for parameter in parameters):
        return 100
    return sum(
        parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def _narrow(kind: Any, real: Signature, full: str) -> None:
    maker = "__new__" if "__new__" in vars(kind) else "__init__"
    setattr(kind, maker, _taking(real, getattr(kind, maker), full, bound=True))
    kind.__signature__ = real
