# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants that decide otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_testkit.mutation.rules import shapes
from accel_testkit.mutation.source import Edit, Function, Mutant


def condition(function: Function) -> Iterator[Mutant]:
    """A condition is inverted; `and` is `or`; True is False."""
    decided = [value for value in shapes.returns(function) if isinstance(value, (ast.Compare, ast.BoolOp))]
    yield from (_inverted(function, test) for test in decided)
    asserted = shapes.assertions(function)
    for node in function.walk():
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield _inverted(function, node.test)
        elif isinstance(node, ast.comprehension):
            yield from (_inverted(function, test) for test in node.ifs)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield function.changed("condition", node, f"bool({function.source.segment(node.operand)})")
        elif isinstance(node, ast.BoolOp):
            yield _other_operator(function, node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool) and node not in asserted:
            yield function.changed("condition", node, str(not node.value))


def _inverted(function: Function, test: ast.expr) -> Mutant:
    return function.changed("condition", test, f"(not ({function.source.segment(test)}))")


def _other_operator(function: Function, node: ast.BoolOp) -> Mutant:
    word = " or " if isinstance(node.op, ast.And) else " and "
    values = [f"({function.source.segment(value)})" for value in node.values]
    start, end = function.source.span(node)
    return function.edited("condition", [node], [Edit(start, end, f"({word.join(values)})")])
