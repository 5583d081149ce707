# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What of a vendor is mutated: its effective accelerator class, and its op builders with the functions they load."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder import OpBuilder
from accel_testkit.mutation.source import Function, Source
from accel_testkit.suite import ops

#: Of core, what vendors derive from: its other packages are not part of an accelerator.
_CORE = ("accel_core.device", "accel_core.interface", "accel_core.op_builder")


@dataclass
class Scope:
    """Packages whose functions are mutated, and functions that count even if no check executes them.

    own: packages that count: what the ops load from others is tested there.
    named: (file, first line) of the code of the effective methods and of the ops' functions.
    classes: dotted names of the accelerator's class, of the builders of ops that it has, and of what these derive from.
    """

    own: frozenset[str] = frozenset()
    packages: set[str] = field(default_factory=set)
    named: set[tuple[str, int]] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)

    @property
    def places(self) -> dict[str, str]:
        """The beginning of the paths of each package's files: its folder, or a module's own file."""
        found = {}
        for package in sorted(self.packages):
            spec = importlib.util.find_spec(package)
            if spec is not None and spec.origin is not None:
                folder = spec.submodule_search_locations is not None
                found[package] = f"{Path(spec.origin).parent}/" if folder else spec.origin
        return found

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "packages": sorted(self.packages),
            "named": sorted(self.named),
            "classes": sorted(self.classes),
        }

    @classmethod
    def read(cls, document: dict[str, Any]) -> Scope:
        """Return it from plain data."""
        named = {(name, line) for name, line in document["named"]}
        return cls(packages=set(document["packages"]), named=named, classes=set(document["classes"]))

    def lacks(self, module: str, name: str) -> bool:
        """Return whether a class, by module and qualified name, is of accelerators or builders, but not of this one."""
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        kind = isinstance(found, type) and issubclass(found, (OpBuilder, DeepSpeedAccelerator))
        return kind and f"{module}.{name}" not in self.classes


def survey(accelerator: Any, also: Iterable[str] = ()) -> Scope:
    """Return the scope of an accelerator: its package, what it derives from in core, and other packages by name."""
    places = (type(accelerator).__module__, accelerator.op_builder_dir())
    scope = Scope(frozenset({*(place.partition(".")[0] for place in places), *_CORE, *also}))
    _add_class(scope, type(accelerator))
    for builder in ops.served(accelerator).values():
        _add_class(scope, type(builder))
        try:
            loaded = builder.load(verbose=False)
        except Exception:
            # A check of the suite reports it.
            continue
        for name in dir(loaded):
            if name[:2] != "__":
                for function in _functions(getattr(loaded, name, None)):
                    _add(scope, function)
    return scope


def _add_class(scope: Scope, cls: type) -> None:
    scope.classes |= {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__}
    for name in {name for base in cls.__mro__ for name in vars(base)}:
        for function in _effective(cls, name):
            _add(scope, function)


def _effective(cls: type, name: str) -> Iterator[FunctionType]:
    """Yield the definitions of a method that a call runs: the first one, and what each reaches through super()."""
    for base in cls.__mro__:
        if name in vars(base):
            for function in _functions(vars(base)[name]):
                yield function
                if f"super().{name}" not in _text(function):
                    return


def _text(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _functions(thing: Any, depth: int = 3) -> Iterator[FunctionType]:
    """Yield the Python functions in a method, property, partial, decorated or nested function."""
    if depth == 0:
        return
    if isinstance(thing, property):
        parts: list[Any] = [thing.fget, thing.fset]
    elif isinstance(thing, (staticmethod, classmethod, MethodType)):
        parts = [thing.__func__]
    elif isinstance(thing, partial):
        parts = [thing.func]
    elif isinstance(thing, FunctionType):
        yield thing
        parts = [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
        parts = [part for part in parts if not isinstance(part, type)]
    else:
        parts = [getattr(thing, "__wrapped__", None)]
    for part in parts:
        if callable(part):
            yield from _functions(part, depth - 1)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _add(scope: Scope, function: FunctionType) -> None:
    module = function.__module__ or ""
    package = next((name for name in _CORE if f"{module}.".startswith(f"{name}.")), module.partition(".")[0])
    if package in scope.own:
        scope.packages.add(package)
        scope.named.add((function.__code__.co_filename, function.__code__.co_firstlineno))


def sources(scope: Scope) -> Iterator[Source]:
    """Yield the modules of the packages."""
    for package, place in scope.places.items():
        if not place.endswith("/"):
            yield Source.read(Path(place), package)
            continue
        for path in sorted(Path(place).rglob("*.py")):
            relative = path.relative_to(place).with_suffix("")
            parts = [part for part in relative.parts if part != "__init__"]
            yield Source.read(path, ".".join([package, *parts]))


def first_line(function: Function) -> int:
    """Return the first line of a function's code object: that of its first decorator."""
    node: ast.FunctionDef | ast.AsyncFunctionDef = function.node
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
