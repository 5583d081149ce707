# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a Python file uses of other modules: dotted names with the line, followed through imports and assignments."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ci.house.source import Source

#: In a class of core or of a vendor: the device module, `torch.<type>`.
NAMESPACE = "self._ns"
#: On a line whose name may be missing, or above it, with the reason why that does no harm.
OPT_OUT = re.compile(r"#\s*names:\s*(?P<reason>\S.*)$")


@dataclass(frozen=True)
class Use:
    """A dotted name on a line; `method` is the function around it, `reason` why it is let through."""

    name: str
    line: int
    method: str
    reason: str = ""


@dataclass
class _Scope:
    """A function or the module, with what it asks `hasattr` of."""

    name: str
    guarded: set[str] = field(default_factory=set)


class Reader(ast.NodeVisitor):
    """Collects the uses in a file.

    aliases: what names of the file stand for, `self._ns` among them.
    """

    def __init__(self, source: Source, aliases: Mapping[str, str] | None = None) -> None:
        self.uses: list[Use] = []
        self._source = source
        self._aliases = dict(aliases or {})
        self._scopes = [_Scope("")]

    def read(self) -> list[Use]:
        """All uses. Raises SyntaxError."""
        tree = self._source.tree
        for node in ast.walk(tree):
            self._learn(node)
        self._guards(tree, self._scopes[0])
        self.visit(tree)
        return self.uses

    # ------------------------------------------------------------------------------------ aliases

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                self._aliases[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                self._aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            meant = self.resolve(node.value)
            if meant:
                self._aliases[node.targets[0].id] = meant

    def resolve(self, node: ast.expr) -> str:
        """The dotted name that an expression stands for; empty when that can not be told."""
        text = ast.unparse(node)
        if text in self._aliases:
            return self._aliases[text]
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Call):
            return self._call(node)
        return ""

    def _call(self, node: ast.Call) -> str:
        words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        function = ast.unparse(node.func)
        if function.endswith("import_module") and words:
            return words[0]
        if function == "getattr" and words:
            owner = self.resolve(node.args[0])
            return f"{owner}.{words[0]}" if owner else ""
        return ""

    # --------------------------------------------------------------------------------------- uses

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function of its own; one inside another belongs to that."""
        scope = _Scope(self._scopes[-1].name or node.name)
        self._guards(node, scope)
        self._scopes.append(scope)
        self.generic_visit(node)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def _guards(self, node: ast.AST, scope: _Scope) -> None:
        """Remember what `hasattr` is asked of directly here; inner functions are asked later."""
        waiting = list(ast.iter_child_nodes(node))
        while waiting:
            child = waiting.pop()
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "hasattr":
                owner = self.resolve(child.args[0])
                if owner and isinstance(child.args[1], ast.Constant):
                    scope.guarded.add(f"{owner}.{child.args[1].value!s}")
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting += ast.iter_child_nodes(child)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A chain as a whole, not its parts."""
        name = self.resolve(node)
        if name:
            self._add(name, node.lineno)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """`getattr` with a default can not fail; without one it is a use."""
        if ast.unparse(node.func) == "getattr" and len(node.args) == 2:
            name = self._call(node)
            if name:
                self._add(name, node.lineno)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """`from torch_npu.npu import Stream` uses it."""
        if node.level == 0 and node.module:
            for alias in node.names:
                self._add(f"{node.module}.{alias.name}", node.lineno)

    def visit_Import(self, node: ast.Import) -> None:
        """`import torch_npu.contrib` uses it."""
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_Assign(self, node: ast.Assign) -> None:
        """`FUSED_OP = "npu.npu_apply_adam_w"` names an op of torch.ops."""
        if ast.unparse(node.targets[0]) == "FUSED_OP" and isinstance(node.value, ast.Constant):
            self._add(f"torch.ops.{node.value.value!s}", node.lineno)
        self.generic_visit(node)

    def _add(self, name: str, line: int) -> None:
        if any(name == g or name.startswith(f"{g}.") for scope in self._scopes for g in scope.guarded):
            return
        around = self._source.lines[max(line - 2, 0) : line]
        reasons = [match["reason"] for text in around if (match := OPT_OUT.search(text))]
        self.uses.append(Use(name, line, self._scopes[-1].name, " ".join(reasons)))
