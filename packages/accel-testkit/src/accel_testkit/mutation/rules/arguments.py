# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants that ignore or confuse arguments."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from accel_testkit.mutation.rules import shapes
from accel_testkit.mutation.source import Edit, Function, Mutant

#: Only what is printed depends on it.
_QUIET = {"verbose"}
#: Methods, and functions of modules, of which the order of two arguments changes nothing.
_SYMMETRIC = ("transpose", "swapaxes", "gcd", "lcm", "maximum", "minimum", "promote_types")
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)


def argument(function: Function) -> Iterator[Mutant]:
    """A parameter has its default value; a call passes one argument less."""
    indices = {"device_index", "index"} | _QUIET
    read = shapes.loaded(function)
    for parameter, default in shapes.parameters(function):
        if default is not None and parameter.arg in read and parameter.arg not in indices:
            text = function.source.segment(default)
            yield function.begun_with("argument", f"{parameter.arg} = {text}")
    for node in function.walk():
        if isinstance(node, ast.Call):
            yield from _fewer(function, node)


def _fewer(function: Function, call: ast.Call) -> Iterator[Mutant]:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    parameters = {parameter.arg for parameter, _ in shapes.parameters(function)}
    asserted = shapes.assertions(function)
    last = len(call.args) - 1
    for number, value in enumerate(arguments):
        # Of the positional ones the last: without another one the rest would move up.
        passed_on = number == last and isinstance(value, ast.Name) and value.id in parameters
        quiet = number > last and call.keywords[number - last - 1].arg in _QUIET
        if (number > last and value not in asserted and not quiet) or passed_on:
            edit = _removal(function, call, arguments, number)
            yield function.edited("argument", [value], [edit])


def _removal(function: Function, call: ast.Call, arguments: list[ast.expr], number: int) -> Edit:
    span = function.source.span
    if number:
        return Edit(span(arguments[number - 1])[1], span(arguments[number])[1], "")
    # The first one goes with the comma after it.
    begin = _start(function, call.keywords[0]) if call.keywords and not call.args else span(arguments[0])[0]
    if len(arguments) == 1:
        return Edit(begin, span(arguments[0])[1], "")
    following = call.keywords[1 - len(call.args)]
    return Edit(begin, _start(function, following), "")


def _start(function: Function, keyword: ast.keyword) -> int:
    # A keyword has the position of an expression.
    located = ast.Name(id="", ctx=ast.Load(), lineno=keyword.lineno, col_offset=keyword.col_offset)
    located.end_lineno, located.end_col_offset = keyword.lineno, keyword.col_offset
    return function.source.span(located)[0]


def swap(function: Function) -> Iterator[Mutant]:
    """Neighbouring arguments of a call, or the operands of an operator, change places."""
    distances = {_measured(node) for node in function.walk()}
    for node in function.walk():
        if node in distances:
            continue
        if isinstance(node, ast.Call) and not _is_symmetric(node.func):
            plain = [value for value in node.args if not isinstance(value, ast.Starred)]
            for first, second in itertools.pairwise(plain):
                yield from _swapped(function, first, second)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _ORDERED):
            yield from _swapped(function, node.left, node.right)


def _measured(node: ast.AST) -> ast.expr | None:
    """Return what `abs(x)` or `x.abs()` is of: a difference has the same size either way."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "abs":
        return node.func.value
    return node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "abs" and node.args else None


def _is_symmetric(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr in _SYMMETRIC
    return isinstance(called, ast.Name) and called.id in ("max", "min")


def _swapped(function: Function, first: ast.expr, second: ast.expr) -> Iterator[Mutant]:
    texts = function.source.segment(first), function.source.segment(second)
    if texts[0] == texts[1]:
        return
    (start1, end1), (start2, end2) = function.source.span(first), function.source.span(second)
    edits = (Edit(start1, end1, f"({texts[1]})"), Edit(start2, end2, f"({texts[0]})"))
    yield function.edited("swap", [first, second], edits)
