# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator classes of a vendor package: their device module, and what they inherit of core's use of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from ci.house.source import Source
from ci.names.uses import NAMESPACE, Reader, Use

BASE = "TorchDeviceAccelerator"


@dataclass(frozen=True)
class Class:
    """A class as it stands in its file."""

    name: str
    source: Source
    node: ast.ClassDef

    @cached_property
    def bases(self) -> list[str]:
        """Dotted names of the bases, as far as they can be told."""
        return [self._reader.resolve(base) or ast.unparse(base) for base in self.node.bases]

    @cached_property
    def methods(self) -> dict[str, bool]:
        """Names that the body binds, and whether the method asks its base's in turn."""
        found = {}
        for item in self.node.body:
            if isinstance(item, ast.FunctionDef):
                found[item.name] = f"super().{item.name}" in ast.unparse(item)
            elif isinstance(item, ast.Assign):
                found |= {ast.unparse(target): False for target in item.targets}
        return found

    @cached_property
    def namespace(self) -> str:
        """What its `super().__init__(name, namespace=…)` makes the device module; empty where it says nothing of it."""
        for call in ast.walk(self.node):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
                given = {keyword.arg: keyword.value for keyword in call.keywords}
                if "namespace" in given:
                    return self._module(given["namespace"])
                first = call.args[0] if call.args else given.get("name")
                if isinstance(first, ast.Constant):
                    return f"torch.{first.value!s}"
        return ""

    def _module(self, given: ast.expr) -> str:
        """A function of the package's own that is given a module makes the like of it."""
        if isinstance(given, ast.Call) and given.args:
            return self._reader.resolve(given.args[0])
        return self._reader.resolve(given)

    @cached_property
    def device_uses(self) -> list[Use]:
        """What its methods ask of the device module."""
        inside = range(self.node.lineno, (self.node.end_lineno or self.node.lineno) + 1)
        uses = Reader(self.source, {NAMESPACE: NAMESPACE}).read()
        return [use for use in uses if use.line in inside and use.name.startswith(f"{NAMESPACE}.")]

    @cached_property
    def _reader(self) -> Reader:
        reader = Reader(self.source)
        reader.read()
        return reader


@dataclass(frozen=True)
class DeviceClass:
    """A vendor's class on core's TorchDeviceAccelerator.

    namespace: dotted name of its device module, `torch.npu`.
    inherited: what core's methods ask of that module, as far as no class before them answers instead.
    """

    name: str
    source: Source
    line: int
    namespace: str
    inherited: list[tuple[Source, Use]]


def find(package: Sequence[Source], core: Sequence[Source]) -> Iterator[DeviceClass]:
    """The device classes of a vendor package."""
    ours = {found.name: found for source in package for found in _classes(source)}
    known = {found.name: found for source in core for found in _classes(source)} | ours
    # Core offers its classes at its top too.
    known |= {f"accel_core.{found.node.name}": found for source in core for found in _classes(source)}
    for name, found in ours.items():
        order = _order(name, known)
        namespace = next((member.namespace for member in order if member.namespace), "")
        if namespace and any(member.node.name == BASE for member in order):
            inherited = [pair for pair in _reached(order) if pair[0] not in package]
            yield DeviceClass(found.node.name, found.source, found.node.lineno, namespace, inherited)


def module(source: Source) -> str:
    """`accel_xpu.ipex.accelerator` for its file."""
    parts = PurePosixPath(source.path.partition("/src/")[2]).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _classes(source: Source) -> Iterator[Class]:
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef):
            yield Class(f"{module(source)}.{node.name}", source, node)


def _order(name: str, known: dict[str, Class]) -> list[Class]:
    """The classes of which the class is made, in Python's method resolution order."""
    made: dict[str, type] = {}

    def make(name: str) -> type:
        if name not in made:
            bases = tuple(make(base) for base in known[name].bases if base in known)
            made[name] = type(known[name].name, bases, {})
        return made[name]

    return [known[kind.__name__] for kind in make(name).__mro__ if kind is not object]


def _reached(order: Sequence[Class]) -> Iterator[tuple[Source, Use]]:
    """Uses of the device module in methods that no class before theirs overrides without asking them."""
    replaced: set[str] = set()
    for member in order:
        for use in member.device_uses:
            if use.method not in replaced:
                yield member.source, use
        replaced |= {method for method, asks_base in member.methods.items() if not asks_base}
