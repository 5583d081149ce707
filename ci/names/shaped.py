# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A package's own module in the place of a device module: what it defines, and what it passes on."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ci.house.source import Source
from ci.names import classes
from ci.names.surfaces import Surfaces
from ci.names.uses import Reader


class Shaped:
    """The surfaces, and those of a package's modules that its classes take for the device module.

    Such a module has functions that the vendor's lacks, and a `__getattr__` that asks the vendor's for the rest.
    """

    def __init__(self, sources: Sequence[Source], namespaces: Collection[str], offered: Surfaces) -> None:
        self._offered = offered
        modules = {classes.module(source): source for source in sources}
        self._modules = {name: source for name, source in modules.items() if name in namespaces}

    def fault(self, name: str) -> str:
        """Why the name can not be relied on; empty when it can, or when it is not a vendor's."""
        owner, _, last = name.rpartition(".")
        source = self._modules.get(owner)
        if source is None:
            return self._offered.fault(name)
        if last in _defined(source.tree):
            return ""
        behind = _passed_on(source)
        return self._offered.fault(f"{behind}.{last}") if behind else f"{name} is not defined"


def _defined(tree: ast.Module) -> set[str]:
    """Names that the module binds."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _passed_on(source: Source) -> str:
    """The module that a `__getattr__` of this one asks: `getattr(torch.mps, name)`."""
    reader = Reader(source)
    reader.read()
    for function in source.tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__getattr__":
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "getattr":
                    return reader.resolve(call.args[0])
    return ""
