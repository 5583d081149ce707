# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The names of each real vendor module, `surfaces/<name>.json` with source and version, and how a module gets them.

`fill` adds exactly the real one's names, with the real ones' parameters. Those not simulated raise NotSimulated.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, NoReturn

from accel_sim import shared
from accel_sim.errors import absent, raise_not_simulated


@dataclass(frozen=True)
class Name:
    """One name of a vendor's module.

    kind:        function, class, method, property or attr.
    signature:   as in the real module; empty where no source shows it.
    condition:   when it exists only sometimes.
    unconfirmed: only DeepSpeed is known to use it.
    """

    kind: str
    signature: str = ""
    condition: str = ""
    note: str = ""
    unconfirmed: bool = False


@dataclass(frozen=True)
class Surface:
    """The names of one vendor's module, and where they were read."""

    vendor: str
    module: str
    source: str
    version: str
    names: dict[str, Name]

    def children(self, prefix: str) -> dict[str, Name]:
        """Return the names directly below a prefix, by their last part."""
        start = prefix + "."
        found: dict[str, Name] = {}
        for full, name in self.names.items():
            if not full.startswith(start):
                continue
            first, _, deeper = full[len(start) :].partition(".")
            if not deeper:
                found[first] = name
            else:
                found.setdefault(first, Name("attr"))
        return found


@cache
def load(name: str) -> Surface:
    """Return the surface of a vendor. Raises FileNotFoundError where there is none."""
    data = json.loads((shared.folder("surfaces") / f"{name}.json").read_text(encoding="utf-8"))
    names = {full: Name(**entry) for full, entry in data.pop("names").items()}
    return Surface(names=names, **data)


def available() -> list[str]:
    """Return the names of all surfaces."""
    return sorted(path.stem for path in shared.folder("surfaces").glob("*.json"))


class _Absent:
    """A value that only the real runtime has."""

    def __init__(self, full: str) -> None:
        self._full = full

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise_not_simulated(f"{self._full}.{name}")

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise_not_simulated(self._full)

    def __repr__(self) -> str:
        return f"<{self._full}: not simulated>"


def _class(full: str, methods: Iterable[str], simulated: Mapping[str, Any]) -> type:
    members = {name: staticmethod(simulated.get(name, absent(f"{full}.{name}"))) for name in methods}
    outside, _, name = full.rpartition(".")
    return type(name, (), {**members, "__init__": absent(full), "__module__": outside})


def holds(condition: str) -> bool:
    """Return whether a name that exists under a condition exists here."""
    if condition.startswith("never"):
        return False
    return "PT_HPU_LAZY_MODE" not in condition or os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def fill(
    module: ModuleType, prefix: str, surface: Surface, simulated: Mapping[str, Any], *, refuses: bool = True
) -> None:
    """Add the names below a prefix of the surface to a module.

    simulated: by name below the prefix (`memory_allocated`), also used for the same name in submodules.
    refuses:   whether names that are not simulated are added as functions that raise.
    """
    for name, entry in surface.children(prefix).items():
        full = f"{prefix}.{name}"
        if entry.condition and not holds(entry.condition):
            continue
        if name in simulated:
            setattr(module, name, _as_real(simulated[name], entry, full))
        elif not refuses:
            _inside(getattr(module, name, None), module, name, full, surface, simulated)
        elif entry.kind == "attr" and (surface.children(full) or "<module" in entry.signature):
            setattr(module, name, _submodule(module, name, full, surface, simulated))
        else:
            setattr(module, name, _refusal(full, entry, surface, simulated))


def _inside(
    found: Any, module: ModuleType, name: str, full: str, surface: Surface, simulated: Mapping[str, Any]
) -> None:
    """Fill a submodule of torch's own, and replace a class that a build for the CPU has a dummy of."""
    if isinstance(found, ModuleType) and surface.children(full):
        fill(found, full, surface, simulated, refuses=False)
    elif isinstance(found, type) and any(base.__module__ == "torch._utils" for base in found.__mro__):
        setattr(module, name, _class(full, surface.children(full), {}))


def _submodule(
    parent: ModuleType, name: str, prefix: str, surface: Surface, simulated: Mapping[str, Any]
) -> ModuleType:
    module = ModuleType(f"{parent.__name__}.{name}")
    # It may have its own submodules, and files of a stub package.
    module.__path__ = [os.path.join(folder, name) for folder in getattr(parent, "__path__", ())]
    fill(module, prefix, surface, simulated)
    sys.modules[module.__name__] = module
    return module


def _refusal(full: str, entry: Name, surface: Surface, simulated: Mapping[str, Any]) -> Any:
    if entry.kind == "class":
        return _class(full, surface.children(full), simulated)
    return absent(full) if entry.kind in ("function", "method") else _Absent(full)


def read_signature(entry: Name) -> Signature | None:
    """Return the signature of a surface's function or class, without self and cls; None where it is unknown."""
    text = entry.signature or ""
    if entry.kind not in ("function", "class", "method") or not text.startswith("(") or "..." in text:
        return None  # not known in Python's words; an operator's schema is C++'s
    found: dict[str, Any] = {}
    try:
        code = compile(f"def real{text}: pass", text, "exec", annotations.compiler_flag)
        exec(code, {"__builtins__": {}}, found)
    except NameError:  # a default that names something of the package
        return None
    parameters = signature_of(found["real"]).parameters.values()
    return Signature([each for each in parameters if each.name not in ("self", "cls")])


def signature_of(function: Any) -> Signature:
    """Return the signature of a callable, without annotations."""
    found = inspect.signature(function)
    parameters = [parameter.replace(annotation=Parameter.empty) for parameter in found.parameters.values()]
    return Signature(parameters)


def _as_real(value: Any, entry: Name, full: str) -> Any:
    """Return a simulated function or class with the real one's parameters.

    full: its name in the real module. Values are handed on by position, so what is simulated may name its
    parameters as it likes, and lack the last ones: those then have to keep their defaults. A class is changed in
    place.
    """
    real = read_signature(entry)
    if real is None or not callable(value) or signature_of(value) == real:
        return value
    if entry.kind == "class":
        _narrow(value, real, full)
        return value
    return _taking(real, value, full)


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

    itself = [Parameter("self", Parameter.POSITIONAL_ONLY)] if bound else []
    call.__signature__ = Signature([*itself, *real.parameters.values()])  # type: ignore[attr-defined]
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
