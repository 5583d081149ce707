# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants that do not put back what they changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_testkit.mutation.source import Function, Mutant


def restore(function: Function) -> Iterator[Mutant]:
    """`finally` does nothing, an exception is not handled, a context is not entered."""
    for node in function.walk():
        if isinstance(node, ast.Try):
            for statement in node.finalbody:
                yield function.changed("restore", statement, "pass")
            for handler in node.handlers:
                if not isinstance(handler.body[0], ast.Raise):
                    yield function.changed("restore", handler.body[0], "raise")
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is None:
                    yield function.changed(
                        "restore", item.context_expr, '__import__("contextlib").nullcontext()'
                    )
