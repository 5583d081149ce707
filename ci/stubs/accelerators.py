# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator classes of the packages, read from their sources: what each asks of its device module."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

BASE = "TorchDeviceAccelerator"
_MODULE = "self.device_module"
#: Protocols of names that a runtime may lack, which core asks for before it uses them.
_OPTIONAL = ("GraphModule",)


@dataclass(frozen=True)
class Call:
    """A name that a method asks of the device module, and how it calls it: None where it does not.

    arguments: positional ones, then names of keywords.
    """

    name: str
    method: str
    arguments: tuple[str, ...] | None


@dataclass(frozen=True)
class Class:
    """A class as it stands in its file; `known` are the dotted names that the file's imports stand for."""

    module: str
    node: ast.ClassDef
    known: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.module}.{self.node.name}"

    @cached_property
    def bases(self) -> list[str]:
        return [_resolved(base, self.known) for base in self.node.bases]

    @cached_property
    def replaced(self) -> set[str]:
        """Methods that the body has and that do not ask their base's in turn."""
        methods = [item for item in self.node.body if isinstance(item, ast.FunctionDef)]
        found = {item.name for item in methods if f"super().{item.name}" not in ast.unparse(item)}
        assigned = [item.targets for item in self.node.body if isinstance(item, ast.Assign)]
        return found | {ast.unparse(target) for targets in assigned for target in targets}

    @cached_property
    def device_module(self) -> str:
        """What `super().__init__(name, device_module=…)` makes the device module; empty where it says nothing of it."""
        for call in ast.walk(self.node):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
                given = {keyword.arg: keyword.value for keyword in call.keywords}
                if "device_module" in given:
                    return _resolved(_inside(given["device_module"]), self.known)
                if call.args and isinstance(call.args[0], ast.Constant):
                    return f"torch.{call.args[0].value!s}"
        return ""

    @cached_property
    def calls(self) -> list[Call]:
        """What its methods ask of the device module."""
        methods = (item for item in self.node.body if isinstance(item, ast.FunctionDef))
        return [call for method in methods for call in _calls(method)]


@dataclass(frozen=True)
class Accelerator:
    """A vendor's class on core's, its device module by its dotted name, and every call that reaches that module."""

    name: str
    device_module: str
    calls: list[Call] = field(default_factory=list)


def find(package: Path, core: Path) -> Iterator[Accelerator]:
    """The accelerator classes below a package's source folder; `core` is that of accel_core."""
    ours = {found.name: found for found in _classes(package)}
    known = {found.name: found for found in _classes(core)} | ours
    # The public packages of core offer their classes at their top.
    for found in list(known.values()):
        known.setdefault(f"{found.module.rpartition('.')[0]}.{found.node.name}", found)
    for name, found in ours.items():
        order = _order(found, known)
        module = next((member.device_module for member in order if member.device_module), "")
        if module and any(member.node.name == BASE for member in order):
            yield Accelerator(name, module, list(_reached(order)))


def _classes(folder: Path) -> Iterator[Class]:
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
        module = ".".join(file.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
        known = _imports(tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield Class(module, node, known | {node.name: f"{module}.{node.name}"})


def _imports(tree: ast.Module) -> dict[str, str]:
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def _resolved(node: ast.expr, known: Mapping[str, str]) -> str:
    """A dotted name with what the file's imports stand for in place of its beginning."""
    text = ast.unparse(node)
    first, dot, rest = text.partition(".")
    return known.get(first, first) + dot + rest


def _inside(given: ast.expr) -> ast.expr:
    """`cast(DeviceModule, hpu)` and a function that completes a module stand for that module."""
    return _inside(given.args[-1]) if isinstance(given, ast.Call) and given.args else given


def _calls(method: ast.FunctionDef) -> Iterator[Call]:
    called = {id(node.func): node for node in ast.walk(method) if isinstance(node, ast.Call)}
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and _is_module(node.value):
            call = called.get(id(node))
            shape = (*("_" for _ in call.args), *(str(word.arg) for word in call.keywords)) if call else None
            yield Call(node.attr, method.name, shape)


def _is_module(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast":
        protocol, value = map(ast.unparse, node.args)
        return value == _MODULE and protocol not in _OPTIONAL
    return ast.unparse(node) == _MODULE


def _order(found: Class, known: Mapping[str, Class]) -> list[Class]:
    """The classes of which the class is made, in Python's method resolution order."""
    made: dict[str, type] = {}
    members: dict[type, Class] = {}

    def make(member: Class) -> type:
        if member.name not in made:
            bases = dict.fromkeys(make(known[base]) for base in member.bases if base in known)
            made[member.name] = type(member.node.name, tuple(bases), {})
            members[made[member.name]] = member
        return made[member.name]

    return [members[cls] for cls in make(found).__mro__ if cls is not object]


def _reached(order: Iterable[Class]) -> Iterator[Call]:
    """Calls in methods that no class before theirs has replaced."""
    replaced: set[str] = set()
    for member in order:
        yield from (call for call in member.calls if call.method not in replaced)
        replaced |= member.replaced
