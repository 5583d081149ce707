# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants of tables and settings: what a module or class assigns when it is imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from typing import Any

from accel_testkit.mutation.reach import Line
from accel_testkit.mutation.source import Mutant, Source


def readers(sources: Iterable[Source]) -> dict[str, frozenset[Line]]:
    """Return the lines, inside functions, that read each name or attribute."""
    found: dict[str, set[Line]] = {}
    for source in sources:
        for function in source.functions():
            for node in ast.walk(function.node):
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    name = node.id if isinstance(node, ast.Name) else node.attr
                    found.setdefault(name, set()).add((str(source.path), node.lineno))
    return {name: frozenset(lines) for name, lines in found.items()}


def install(mutant: Mutant) -> int:
    """Give a table of this process the mutant's value; returns the number of places."""
    module = sys.modules.get(mutant.source.module)
    if module is None:
        return 0
    *classes, name = mutant.function.split(".")
    holder: Any = module
    for part in classes:
        holder = getattr(holder, part)
    old = vars(holder)[name]
    new = _value(mutant, {**vars(module), **vars(holder)})
    if type(old) is type(new) and isinstance(old, (list, dict, set)):
        # In place: whoever has it, has it changed.
        _fill(old, new)
        return 1
    setattr(holder, name, new)
    return 1 + (0 if classes else _replace_imported(name, old, new))


def _value(mutant: Mutant, names: dict[str, Any]) -> Any:
    source = Source(mutant.source.path, mutant.source.module, mutant.text)
    (table,) = (table for table in source.tables() if table.name == mutant.function)
    (statement,) = table.body
    value: Any = getattr(statement, "value", None)
    return eval(compile(ast.Expression(value), str(source.path), "eval", dont_inherit=True), names)


def _fill(old: Any, new: Any) -> None:
    if isinstance(old, list):
        old[:] = new
    else:
        old.clear()
        old.update(new)


def _replace_imported(name: str, old: object, new: object) -> int:
    """Replace it under its name in the modules that import it."""
    count = 0
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)
            count += 1
    return count
