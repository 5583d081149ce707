# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A parsed module: positions in its text, parents, scopes, and what each name is bound to."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from accel_port.expressions import is_constant, parameters

_LINE_END = re.compile(r"\r\n|\r|\n")


Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Nodes without a place, which several parents share.
_MARKS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)


@dataclass(frozen=True)
class Bound:
    """One place that gives a name its value.

    `kind` is import, assign, param, def, for or other. `value` is what it is assigned from (of a parameter, its
    default), `imported` the dotted name behind an import.
    """

    kind: str
    node: ast.AST
    value: ast.expr | None = None
    imported: str = ""


@dataclass
class Scope:
    """A module, class, function or comprehension with the names that it binds."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Bound]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)  # declared global or nonlocal
    uses: dict[str, list[ast.Name]] = field(default_factory=dict)  # of the names that are bound here

    def owner(self, name: str) -> Scope | None:
        """Return the scope that binds a name which is read here."""
        scope: Scope | None = self
        while scope is not None:
            seen = scope is self or not isinstance(scope.node, ast.ClassDef)
            if seen and name in scope.bindings and name not in scope.elsewhere:
                return scope
            scope = scope.parent
        return None


class SourceLines:
    """The lines of a text. They have Python's own ends; str.splitlines() knows more, form feeds among them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ascii = text.isascii()
        self._lines = [0, *(end.end() for end in _LINE_END.finditer(text)), len(text) + 1]

    def offset(self, line: int, column: int) -> int:
        """Return the index in the text of a line (from 1) and a column in UTF-8 bytes (from 0)."""
        start = self._lines[line - 1]
        if self._ascii:
            return start + column
        text = self.text[start : self._lines[line]]
        return start + len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass"))

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line (from 1) and the column in characters (from 1) of an index in the text."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line (from 1) without its end."""
        return self.text[self._lines[number - 1] : self._lines[number]].rstrip("\r\n")

    def end_of_line(self, offset: int) -> int:
        """Return the index of the end of a line, before its line end."""
        match = _LINE_END.search(self.text, offset)
        return match.start() if match else len(self.text)

    @property
    def newline(self) -> str:
        """The line end that the text has."""
        match = _LINE_END.search(self.text)
        return match[0] if match else "\n"


class Module(SourceLines):
    """A module's syntax tree with parents, scopes and exact positions. Raises `SyntaxError`, `ValueError`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.module_scope = Scope(self.tree, None)
        self.stars: set[str] = set()
        self.nodes: list[ast.AST] = []  # outer nodes first, in the order of the text
        self._qualified: dict[ast.AST, str] = {}
        self._visit()
        for name in self.nodes:
            if isinstance(name, ast.Name) and (owner := self.scopes[name].owner(name.id)):
                owner.uses.setdefault(name.id, []).append(name)

    # Positions

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the start and the end of a node in the text."""
        assert isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.alias, ast.ExceptHandler))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def argument_start(self, argument: ast.expr, call: ast.Call) -> int:
        """Return where an argument begins, with the parentheses around it."""
        start = self.span(argument)[0]
        opening = self.text.index("(", self.span(call.func)[1])
        while (before := self.text[:start].rstrip(" \t\r\n")).endswith("(") and len(before) - 1 > opening:
            start = len(before) - 1
        return start

    def keyword_name(self, keyword: ast.keyword) -> tuple[int, int]:
        """Return the span of a keyword argument's name with its `=`."""
        start = self.span(keyword)[0]
        match = re.compile(r"\w+\s*=\s*").match(self.text, start)
        assert match is not None
        return start, match.end()

    def read_exactly(self, node: ast.AST) -> bool:
        """Return whether the text at a node's position is the node; older Pythons misplace parts of f-strings."""
        try:
            again = ast.parse(f"({self.code(node)}\n)", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(again) == ast.dump(node)

    # The tree

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parents of a node, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that a node belongs to."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> Function | None:
        """Return the innermost function around a node."""
        return next((a for a in self.ancestors(node) if isinstance(a, Function)), None)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements that contains a statement."""
        for _, value in ast.iter_fields(self.parents[statement]):
            if isinstance(value, list) and statement in value:
                return value
        return [statement]

    def alone(self, statement: ast.stmt) -> bool:
        """Return whether a statement has its lines to itself: no `;`, and no `if x:` before it."""
        start, end = self.span(statement)
        before = self.text[self._lines[self.place(start)[0] - 1] : start]
        after = self.text[end : self._lines[self.place(end)[0]]].split("#")[0]
        return not before.strip(" \t\f") and not after.strip()

    # Names

    def bindings(self, name: ast.Name) -> list[Bound]:
        """Return every place that binds a name, in the scope that it is read from; empty for builtins."""
        owner = self.scopes[name].owner(name.id)
        return owner.bindings[name.id] if owner else []

    def reaching(self, name: ast.Name) -> list[Bound]:
        """Return the places that a name may have its value from: the last one before it, if it cannot be passed by."""
        bindings = self.bindings(name)
        if len(bindings) < 2 or self.scopes[name].bindings.get(name.id) is not bindings:
            return bindings
        inside = {part for b in bindings for part in (b.node, *self.ancestors(b.node))}
        statement = self.statement(name)
        while not isinstance(statement, (*_SCOPES, ast.Module)):
            block = self.block(statement)
            for earlier in reversed(block[: block.index(statement)]):
                if made := [b for b in bindings if b.node is earlier]:
                    return made
                if earlier in inside:
                    return bindings
            above = self.parents[statement]
            branches = isinstance(above, ast.If) and above.test not in inside
            if not isinstance(above, ast.stmt) or (above in inside and not branches):
                return bindings
            statement = above
        return bindings

    def parameter(self, call: ast.Call, where: str | int) -> ast.arg | None:
        """Return the parameter that a call of a function of this module gives an argument for."""
        made = [b.node for b in self.bindings(call.func)] if isinstance(call.func, ast.Name) else []
        named = parameters(made[0].args) if len(made) == 1 and isinstance(made[0], Function) else []
        return next((arg for at, (arg, _) in enumerate(named) if where in (at, arg.arg)), None)

    def uses(self, name: ast.Name) -> list[ast.Name]:
        """Return every occurrence of the variable that a name stands for."""
        owner = self.scopes[name].owner(name.id)
        return owner.uses.get(name.id, []) if owner else [name]

    def qualified(self, node: ast.AST | None) -> str:
        """Return the dotted name that an expression stands for through imports and aliases; empty if unknown."""
        if not isinstance(node, (ast.Attribute, ast.Name)):
            return ""
        if node not in self._qualified:
            self._qualified[node] = ""  # while it is looked for, as of a = b and b = a
            self._qualified[node] = self._resolved(node)
        return self._qualified[node]

    def _resolved(self, node: ast.Attribute | ast.Name) -> str:
        if isinstance(node, ast.Attribute):
            base = self.qualified(node.value)
            return f"{base}.{node.attr}" if base else ""
        bindings = self.bindings(node)
        if not bindings:
            # Written for a module whose star imports, or whose exec, bring torch.
            return "torch" if node.id == "torch" else ""
        imported = {b.imported for b in bindings if b.kind == "import"}
        rest = [b for b in bindings if b.kind != "import" and not is_constant(b.value, None)]
        if len(imported) == 1 and not rest:
            return imported.pop()
        if not imported and len(bindings) == 1 and rest and rest[0].kind == "assign":
            alias = rest[0].value
            if isinstance(alias, (ast.Name, ast.Attribute)) and alias is not node:
                found = self.qualified(alias)
                return found if found.startswith("torch") else ""
        return ""

    # Building

    def _visit(self) -> None:
        stack: list[tuple[ast.AST, Scope]] = [(self.tree, self.module_scope)]
        while stack:
            node, scope = stack.pop()
            self.nodes.append(node)
            self._bind(node, scope)
            inner = Scope(node, scope) if isinstance(node, _SCOPES) else scope
            if isinstance(node, (ast.Name, *_SCOPES)):
                self.scopes[node] = inner
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self._bind_parameters(node.args, inner)
            children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _MARKS)]
            self.parents.update(dict.fromkeys(children, node))
            outside = _evaluated_outside(node)
            stack += [(child, scope if child in outside else inner) for child in reversed(children)]

    def _bind_parameters(self, args: ast.arguments, scope: Scope) -> None:
        for arg, default in parameters(args):
            scope.bindings.setdefault(arg.arg, []).append(Bound("param", arg, default))
        for extra in (args.vararg, args.kwarg):
            if extra is not None:
                scope.bindings.setdefault(extra.arg, []).append(Bound("other", extra))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        def add(name: str, binding: Bound) -> None:
            scope.bindings.setdefault(name, []).append(binding)

        match node:
            case ast.Import():
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    full = alias.name if alias.asname else top
                    add(alias.asname or top, Bound("import", node, None, full))
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.add(node.module or "")
                    else:
                        full = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                        add(alias.asname or alias.name, Bound("import", node, None, full))
            case ast.Assign():
                for target in node.targets:
                    self._bind_target(target, node.value, node, scope)
            case ast.AnnAssign(target=ast.Name(id=name)):
                add(name, Bound("assign", node, node.value))
            case ast.NamedExpr(target=ast.Name(id=name)):
                while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
                    scope = scope.parent
                add(name, Bound("assign", node, node.value))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for name in _names_in(node.target):
                    add(name, Bound("for", node, node.iter if isinstance(node.target, ast.Name) else None))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                add(node.name, Bound("def", node))
            case ast.Global() | ast.Nonlocal():
                scope.elsewhere.update(node.names)
                if isinstance(node, ast.Global):
                    for name in node.names:
                        self.module_scope.bindings.setdefault(name, []).append(Bound("other", node))
            case ast.withitem(optional_vars=ast.expr() as target):
                for name in _names_in(target):
                    add(name, Bound("other", node, node.context_expr))
            case (
                ast.AugAssign(target=ast.Name(id=name))
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                add(name, Bound("other", node))
            case ast.Delete(targets=targets):
                for name in (name for target in targets for name in _names_in(target)):
                    add(name, Bound("other", node))

    def _bind_target(self, target: ast.expr, value: ast.expr, node: ast.stmt, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bindings.setdefault(target.id, []).append(Bound("assign", node, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            paired = len(values) == len(target.elts)
            for at, item in enumerate(target.elts):
                if paired:
                    self._bind_target(item, values[at], node, scope)
                else:
                    for name in _names_in(item):
                        scope.bindings.setdefault(name, []).append(Bound("other", node))


def _names_in(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    """Return the children of a scope that are evaluated in the scope around it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
    if isinstance(node, ast.Lambda):
        return [node.args]
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    return []
