# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rules about Python that no linter has: lines of a function, imports of deepspeed by a string, vendors' names in core.

Why: ruff counts statements of a function, not its lines; import-linter sees import statements only; no tool knows what
a vendor's key is.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ci.house.source import Source, Violation
from ci.workspace import CORE

MAX_FUNCTION_LINES = 40
TESTKIT = "accel-testkit"
UPSTREAM = f"packages/{CORE}/src/accel_core/upstream/"
#: The one table of core that speaks of vendors.
CASCADE = f"packages/{CORE}/src/accel_core/cascade.py"
#: DeepSpeed's own backends, whose keys are the same.
BACKENDS = f"packages/{CORE}/src/accel_core/upstream/backend_table.py"
IMPORTERS = ("import_module", "importlib.import_module", "__import__")


def check(source: Source, vendor_keys: Collection[str]) -> Iterator[Violation]:
    """Every rule of this module that the Python file breaks."""
    try:
        tree = source.tree
    except SyntaxError as error:
        yield source.violation(error.lineno or 1, "Python that parses", error.msg)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function_length(source, node)
        if source.package:
            yield from _deepspeed(source, node)
    if source.package == CORE and source.path not in (CASCADE, BACKENDS):
        yield from _vendor_names(source, tree, vendor_keys)


def vendor_keys(cascade: Source) -> set[str]:
    """The keys in core's table: the first argument of each `CascadeEntry(...)`."""
    calls = (node for node in ast.walk(cascade.tree) if isinstance(node, ast.Call))
    rows = (call for call in calls if ast.unparse(call.func) == "CascadeEntry" and call.args)
    return {str(ast.literal_eval(row.args[0])) for row in rows}


def _function_length(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Violation]:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > MAX_FUNCTION_LINES:
        rule = f"a function has at most {MAX_FUNCTION_LINES} lines"
        yield source.violation(node.lineno, rule, f"{node.name} has {length}")


def _deepspeed(source: Source, node: ast.AST) -> Iterator[Violation]:
    if source.package == TESTKIT or source.path.startswith(UPSTREAM):
        return
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in IMPORTERS:
        return
    for argument in node.args[:1]:
        name = argument.value if isinstance(argument, ast.Constant) else None
        if isinstance(name, str) and name.split(".")[0] == "deepspeed":
            rule = "only accel_core/upstream imports deepspeed"
            yield source.violation(node.lineno, rule, f"import of {name}")


def _vendor_names(source: Source, tree: ast.Module, keys: Collection[str]) -> Iterator[Violation]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in keys and id(node) not in docstrings:
            yield source.violation(
                node.lineno,
                "core names no vendor outside its two tables",
                repr(node.value),
            )
