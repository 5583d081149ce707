# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A module's source: its functions, and mutants as replacements of pieces of its text."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Edit:
    """A replacement of source text; start, end: offsets in characters."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutant:
    """One changed function.

    function: qualified name within the module. rule: name of the rule that made it.
    first, last: lines of which a check has to execute one to be able to notice.
    table: whether `function` names a table or setting of a module or class, executed when that is imported.
    """

    source: Source
    function: str
    rule: str
    first: int
    last: int
    edits: tuple[Edit, ...]
    table: bool = False

    @property
    def text(self) -> str:
        """The changed source of the whole module."""
        text = self.source.text
        for edit in sorted(self.edits, key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    @property
    def name(self) -> str:
        """Module and qualified name of the function."""
        return f"{self.source.module}.{self.function}"

    def diff(self) -> list[str]:
        """Return the removed and added lines, without context."""
        before, after = self.source.text.splitlines(), self.text.splitlines()
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


@dataclass(frozen=True)
class Function:
    """One function of a module, nested ones included; or a table: an assignment in a module or class, as a body."""

    source: Source
    name: str
    node: FunctionNode
    table: bool = False

    @property
    def body(self) -> Sequence[ast.stmt]:
        """The statements without the docstring."""
        statements = self.node.body
        return statements[1:] if ast.get_docstring(self.node, clean=False) is not None else statements

    @property
    def first_line(self) -> int:
        """Line of the first statement after the docstring."""
        return self.body[0].lineno if self.body else self.node.body[0].lineno

    @cached_property
    def _for_messages(self) -> set[ast.AST]:
        """Nodes of assignments to names that only error messages read."""
        read: set[str] = set()
        assignments: list[ast.Assign] = []
        for statement in self.body:
            for node in _outside_errors(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    read.add(node.id)
                elif isinstance(node, ast.Assign):
                    assignments.append(node)
        return {
            node
            for assignment in assignments
            if not self.table
            and all(isinstance(name, ast.Name) and name.id not in read for name in assignment.targets)
            for node in ast.walk(assignment)
        }

    def walk(self) -> Iterator[ast.AST]:
        """Yield the nodes that compute: no docstring, annotation, nested function, error or f-string."""
        for statement in self.body:
            yield from (node for node in _computing(statement) if node not in self._for_messages)

    def changed(self, rule: str, node: ast.expr | ast.stmt, text: str) -> Mutant:
        """Return a mutant in which a node has another text."""
        start, end = self.source.span(node)
        return self.edited(rule, [node], [Edit(start, end, text)])

    def edited(self, rule: str, nodes: Sequence[ast.expr | ast.stmt], edits: Sequence[Edit]) -> Mutant:
        """Return a mutant with these edits, in these nodes."""
        lines = [line for node in nodes for line in self._lines(node)]
        return Mutant(self.source, self.name, rule, min(lines), max(lines), tuple(edits), self.table)

    def _lines(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First and last line of the statement with a node; of the node itself where the statement has a body."""
        first, last = node.lineno, node.end_lineno or node.lineno
        for statement in ast.walk(self.node):
            if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
                continue
            if statement.lineno <= first and last <= (statement.end_lineno or first):
                return statement.lineno, statement.end_lineno or first
        return first, last

    def begun_with(self, rule: str, statement: str) -> Mutant:
        """Return a mutant that executes a statement first."""
        first = self.body[0]
        start = self.source.span(first)[0]
        if decorators := getattr(first, "decorator_list", None):
            # A function begins, for ast, after its decorators.
            start = self.source.text.rindex("@", 0, self.source.span(decorators[0])[0])
        indent = " " * first.col_offset
        one_line = first.lineno == self.node.lineno
        text = f"{statement}; " if one_line else f"{statement}\n{indent}"
        return self.edited(rule, [first], [Edit(start, start, text)])


def _target(statement: ast.stmt) -> ast.Name | None:
    """Return the one name that a statement gives a value, None if it is no such assignment."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target = statement.target
    else:
        return None
    return target if isinstance(target, ast.Name) else None


#: Generic classes and makers of types, of `typing`, `collections.abc` and Python itself.
_GENERIC = {
    "Awaitable", "Callable", "ClassVar", "Collection", "Generator", "Iterable", "Iterator", "Literal", "Mapping",
    "MutableMapping", "Optional", "Sequence", "Union", "dict", "frozenset", "list", "set", "tuple", "type",
}  # fmt: skip
_MAKERS = {"NewType", "ParamSpec", "TypeVar"}


def _is_type(value: ast.expr | None) -> bool:
    """Return whether a value is for type checkers only: `Callable[[int], str]`, `list[int] | None`, `TypeVar("T")`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return _is_type(value.left) or _is_type(value.right)
    if isinstance(value, ast.Subscript):
        return isinstance(value.value, ast.Name) and value.value.id in _GENERIC
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _MAKERS


def _as_body(statement: ast.stmt) -> ast.FunctionDef:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(name="", args=nothing, body=[statement], decorator_list=[], returns=None)
    return ast.copy_location(function, statement)


def _outside_errors(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, (ast.Raise, ast.Assert)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_errors(child)


def _computing(node: ast.AST) -> Iterator[ast.AST]:
    # Positions inside an f-string are right from Python 3.12 on only.
    if isinstance(
        node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Raise, ast.Assert, ast.JoinedStr)
    ):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _computing(child)


@dataclass(frozen=True)
class Source:
    """The source of a module. module: dotted name."""

    path: Path
    module: str
    text: str

    @classmethod
    def read(cls, path: Path, module: str) -> Source:
        """Return the source of a file."""
        return cls(path, module, path.read_text(encoding="utf-8"))

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed module."""
        return ast.parse(self.text)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def _for_texts(self) -> set[str]:
        """Names of private functions that only the texts of errors read."""
        texts = {
            node
            for raised in ast.walk(self.tree)
            if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call)
            for argument in [*raised.exc.args, *raised.exc.keywords]
            for node in ast.walk(argument)
        }
        read: dict[str, bool] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                name = node.id if isinstance(node, ast.Name) else node.attr
                read[name] = read.get(name, True) and node in texts
        return {name for name, only in read.items() if only and name[0] == "_" and name[:2] != "__"}

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the offsets of a node's text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Return a node's text."""
        start, end = self.span(node)
        return self.text[start:end]

    def _offset(self, line: int, column: int) -> int:
        # ast counts columns in bytes.
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def functions(self) -> Iterator[Function]:
        """Yield every function with a body."""
        yield from self._functions(self.tree, "")

    def tables(self) -> Iterator[Function]:
        """Yield the assignments to one name in the module and its classes."""
        yield from self._tables(self.tree, "")

    def _tables(self, node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Function]:
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                yield from self._tables(child, f"{prefix}{child.name}.")
                continue
            target, value = _target(child), getattr(child, "value", None)
            if target is not None and target.id[:2] != "__" and not _is_type(value):
                yield Function(self, prefix + target.id, _as_body(child), table=True)

    def _functions(self, node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function = Function(self, prefix + child.name, child)
                if function.body and child.name not in self._for_texts:
                    yield function
                yield from self._functions(child, f"{prefix}{child.name}.<locals>.")
            elif isinstance(child, ast.ClassDef):
                yield from self._functions(child, f"{prefix}{child.name}.")
            else:
                yield from self._functions(child, prefix)
