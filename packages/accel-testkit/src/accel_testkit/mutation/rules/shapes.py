# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the rules need to know of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_testkit.mutation.source import Function


def parameters(function: Function) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the parameters after self or cls with their defaults; not *args and **kwargs."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [
        *zip(positional, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if argument.arg not in ("self", "cls"):
            yield argument, default


def loaded(function: Function) -> set[str]:
    """Return the names that the body reads, nested functions included."""
    return {
        node.id
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def assigned(function: Function) -> set[str]:
    """Return the parameters and the names that the body assigns."""
    names = {argument.arg for argument, _ in parameters(function)}
    return names | {
        node.id for node in function.walk() if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def is_loaded(node: ast.Attribute) -> bool:
    """Return whether an attribute is read, not assigned."""
    return isinstance(node.ctx, ast.Load)


def yields(function: Function) -> bool:
    """Return whether the function is a generator."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in function.walk())


def answer(function: Function) -> str:
    """Return the annotation of what the function returns, empty if there is none."""
    return "" if function.node.returns is None else ast.unparse(function.node.returns).strip("'\"")


def returns(function: Function) -> list[ast.expr]:
    """Return the expressions that the function returns."""
    return [node.value for node in function.walk() if isinstance(node, ast.Return) and node.value is not None]


def is_empty(function: Function) -> bool:
    """Return whether the body does nothing: an abstract method, `pass`, `...`, or only an exception."""
    return all(
        isinstance(statement, (ast.Pass, ast.Raise))
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in function.body
    )


def assertions(function: Function) -> set[ast.AST]:
    """Return the values of `strict` in calls of `zip`: as `assert` it tells a mistake of the function itself."""
    return {
        keyword.value
        for node in function.walk()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip"
        for keyword in node.keywords
        if keyword.arg == "strict"
    }
