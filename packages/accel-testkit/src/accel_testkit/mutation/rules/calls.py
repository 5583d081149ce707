# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants that leave out a call or an update of state."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_testkit.mutation.rules import shapes
from accel_testkit.mutation.source import Function, Mutant

#: Conversions that make a copy: without it the caller shares the original.
_COPIES = ("dict", "list")


def call(function: Function) -> Iterator[Mutant]:
    """A statement that calls is left out; `x.f()` and `list(x)` are x."""
    statements = set()
    for node in function.walk():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            statements.add(node.value)
            yield function.changed("call", node, "pass")
    local = shapes.assigned(function)
    for node in function.walk():
        if isinstance(node, ast.Call):
            inner = _inner(node, local)
            if inner is not None and not (node in statements and isinstance(inner, ast.Name)):
                yield function.changed("call", node, f"({function.source.segment(inner)})")


def _inner(node: ast.Call, local: set[str]) -> ast.expr | None:
    """The object of a method call on a local name or on another call; what is copied."""
    func = node.func
    if isinstance(func, ast.Attribute):
        of_super = isinstance(func.value, ast.Call) and ast.unparse(func.value.func) == "super"
        known = isinstance(func.value, ast.Name) and func.value.id in local
        return func.value if known or (isinstance(func.value, ast.Call) and not of_super) else None
    if isinstance(func, ast.Name) and func.id in _COPIES and len(node.args) == 1 and not node.keywords:
        argument = node.args[0]
        return None if isinstance(argument, (ast.Starred, ast.GeneratorExp)) else argument
    return None


def state(function: Function) -> Iterator[Mutant]:
    """An attribute or an element is not assigned."""
    for node in function.walk():
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets) or isinstance(
            node, ast.AugAssign
        ):
            yield function.changed("state", node, "pass")
