# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator classes of a vendor package: their device module, and which methods they override."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ci.house.source import Source
from ci.names.uses import NAMESPACE, Reader

BASE = "TorchDeviceAccelerator"


@dataclass(frozen=True)
class DeviceClass:
    """A class on core's TorchDeviceAccelerator.

    namespace: dotted name of its device module, `torch.npu`.
    overrides: methods that it, its bases in the package, or core's mixins answer without that class.
    """

    name: str
    source: Source
    line: int
    namespace: str
    overrides: frozenset[str]


def find(sources: Sequence[Source], core: Sequence[Source] = ()) -> Iterator[DeviceClass]:
    """The device classes of a package's files; those that only serve as a base of another are left out.

    core: files of core, whose classes between the package's and TorchDeviceAccelerator override too.
    """
    nodes = {**_classes(core), **_classes(sources)}
    bases = {name: [_last(base) for base in node.bases] for name, (_, node) in nodes.items()}
    own = {name: pair for name, pair in nodes.items() if pair[0] in sources}
    for name, (source, node) in own.items():
        family = [member for member in _family(name, bases) if _is_on_the_way(member, bases)]
        namespace = next((found for member in family if (found := _namespace(*nodes[member]))), "")
        if namespace and any(BASE in bases[member] for member in family):
            overrides = frozenset(method for member in family for method in _overrides(nodes[member][1]))
            yield DeviceClass(name, source, node.lineno, namespace, overrides)


def _classes(sources: Sequence[Source]) -> dict[str, tuple[Source, ast.ClassDef]]:
    return {
        node.name: (source, node)
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }


def _is_on_the_way(name: str, bases: dict[str, list[str]]) -> bool:
    """Whether a class is none of those that TorchDeviceAccelerator is made of."""
    return name not in (_family(BASE, bases) if BASE in bases else (BASE,))


def _family(name: str, bases: dict[str, list[str]]) -> list[str]:
    """The class and its bases in the package."""
    family: list[str] = []
    waiting = [name]
    while waiting:
        member = waiting.pop()
        # A class may be called as its base in another package.
        if member in bases and member not in family:
            family.append(member)
            waiting += bases[member]
    return family


def _namespace(source: Source, node: ast.ClassDef) -> str:
    """What `super().__init__(name, namespace=…)` makes the device module; empty where the class does not call it."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            if "namespace" in given:
                reader = Reader(source)
                reader.read()
                return reader.resolve(given["namespace"])
            first = call.args[0] if call.args else given.get("name")
            if isinstance(first, ast.Constant):
                return f"torch.{first.value!s}"
    return ""


def _overrides(node: ast.ClassDef) -> Iterator[str]:
    """Names that the class body binds, those left out that ask core's method in turn."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            if f"super().{item.name}" not in ast.unparse(item):
                yield item.name
        elif isinstance(item, ast.Assign):
            yield from (ast.unparse(target) for target in item.targets)


def _last(base: ast.expr) -> str:
    return ast.unparse(base).rpartition(".")[2]


__all__ = ["BASE", "NAMESPACE", "DeviceClass", "find"]
