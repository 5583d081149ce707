# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants that compute with other values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from accel_testkit.mutation.rules import shapes
from accel_testkit.mutation.source import Function, Mutant

_BOUNDS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.Pow: "*",
}
_DTYPES = {
    "float16": "bfloat16",
    "bfloat16": "float16",
    "float32": "float16",
    "float64": "float32",
    "uint8": "int8",
    "int32": "int64",
    "int64": "int32",
}
_CASTS = {"float": "half", "half": "bfloat16", "double": "float"}


def off_by_one(function: Function) -> Iterator[Mutant]:
    """A number is one more, a bound is included or excluded, an int that is returned is one more."""
    if shapes.answer(function) == "int":
        for value in shapes.returns(function):
            if not isinstance(value, ast.Constant):
                yield function.changed("off-by-one", value, f"({function.source.segment(value)}) + 1")
    for node in function.walk():
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            number: Any = node.value
            text = repr(number + 1)
            # Methods are called on a hexadecimal number without parentheses, which a decimal one needs.
            plain = function.source.segment(node)[:2].lower() != "0x"
            yield function.changed("off-by-one", node, text if plain else f"({text})")
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _BOUNDS and len(node.ops) == 1:
            left, right = (function.source.segment(part) for part in (node.left, node.comparators[0]))
            yield function.changed("off-by-one", node, f"({left} {_BOUNDS[type(node.ops[0])]} {right})")


def arithmetic(function: Function) -> Iterator[Mutant]:
    """Another operator; a sign is missing."""
    for node in function.walk():
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not _of_text(node):
            left, right = function.source.segment(node.left), function.source.segment(node.right)
            yield function.changed("arithmetic", node, f"(({left}) {_OPERATORS[type(node.op)]} ({right}))")
        elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
            target, value = function.source.segment(node.target), function.source.segment(node.value)
            yield function.changed("arithmetic", node, f"{target} {_OPERATORS[type(node.op)]}= {value}")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield function.changed("arithmetic", node, f"({function.source.segment(node.operand)})")


def _of_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def dtype(function: Function) -> Iterator[Mutant]:
    """`torch.float32` is float16, `.float()` is `.half()`."""
    for node in function.walk():
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "torch" and node.attr in _DTYPES:
            yield function.changed("dtype", node, f"torch.{_DTYPES[node.attr]}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
            value = function.source.segment(node.func.value)
            yield function.changed("dtype", node, f"({value}).{_CASTS[node.func.attr]}()")


def entry(function: Function) -> Iterator[Mutant]:
    """An element is left out of a list, tuple, set or dict."""
    for node in function.walk():
        if (
            isinstance(node, (ast.List, ast.Set))
            or (isinstance(node, ast.Tuple) and function.table)
            or (isinstance(node, ast.Dict) and node.keys)
        ):
            if isinstance(node, (ast.List, ast.Tuple)) and not isinstance(node.ctx, ast.Load):
                continue
            for number in range(len(node.values if isinstance(node, ast.Dict) else node.elts)):
                yield function.changed("entry", node, _without(function, node, number))


def _without(function: Function, node: ast.List | ast.Tuple | ast.Set | ast.Dict, number: int) -> str:
    segment = function.source.segment
    if isinstance(node, ast.Dict):
        pairs = [
            f"**({segment(value)})" if key is None else f"{segment(key)}: {segment(value)}"
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return "{" + ", ".join(pairs[:number] + pairs[number + 1 :]) + "}"
    kept = [segment(value) for at, value in enumerate(node.elts) if at != number]
    if isinstance(node, ast.Set):
        return "{" + ", ".join(kept) + "}" if kept else "set()"
    if isinstance(node, ast.Tuple):
        return "(" + "".join(f"{value}, " for value in kept) + ")"
    return "[" + ", ".join(kept) + "]"


def text(function: Function) -> Iterator[Mutant]:
    """A text that is passed, compared, kept or returned is another one; not a sentence, which is for people.

    With another letter at its end, as `ASCEND_` is a beginning of the same variables as `ASCEND`.
    """
    for node in function.walk():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value.strip():
            yield function.changed("text", node, repr(node.value + "x"))
