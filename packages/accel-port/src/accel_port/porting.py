# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Port the text of one module: ask the rules, settle groups and imports, apply the edits, check the result."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import pairwise

from accel_port.expressions import words
from accel_port.rules import BY_NODE
from accel_port.rules.base import ANY, Context, Edit, Finding, Level, ProjectFacts, Rule, Unstable, applied
from accel_port.syntax import Module
from accel_port.targets import PortTarget

#: Files without one of these words are not parsed: no rule finds anything in them.
RELEVANT = re.compile(
    r"(?i:cuda|nccl)|GradScaler|autocast|pin_memory|DataParallel|device_ids|\.to\(|device\s*=|torch\.device\(|\.device\("
)


@dataclass(frozen=True)
class Ported:
    """A module's text after the port, and what was found, with indices in the text before."""

    text: str
    findings: tuple[Finding, ...]
    edits: tuple[Edit, ...] = ()


def port(text: str, target: str = "deepspeed", facts: ProjectFacts | None = None, folder: str = "") -> Ported:
    """Port a module. Raises `SyntaxError`, `ValueError` for a text that is not Python, and `Unstable`."""
    facts = facts or ProjectFacts(ProjectFacts.of(text))
    ported = _once(text, target, facts, folder)
    if ported.text != text:
        try:
            again = _once(ported.text, target, facts, folder)
        except (SyntaxError, ValueError) as error:
            raise Unstable(f"the result does not parse: {error}") from error
        if again.text != ported.text:
            raise Unstable("a second run would change the result")
    return ported


def _once(text: str, target_name: str, facts: ProjectFacts, folder: str) -> Ported:
    if not RELEVANT.search(text):
        return Ported(text, ())
    module = Module(text)
    names = _Names(module, target_name)
    context = Context(module, names.target, facts.names_near(module, folder))
    findings = [f for f in _found(context) if not context.keeps(f.start, f.end)]
    imports = _Imports(module, context, names, facts.shared)
    findings = _settled(findings)
    findings, edits = imports.settle(findings)
    findings.sort(key=lambda finding: (finding.start, finding.end))
    every = [*edits, *(edit for finding in findings for edit in finding.edits)]
    return Ported(applied(text, every), tuple(findings), tuple(every))


def _found(context: Context) -> list[Finding]:
    """Ask the rules about every node, outer nodes first, in the order of the text."""
    findings: list[Finding] = []
    for node in context.module.nodes:
        for rule, visit in BY_NODE.get(type(node).__name__, ()):
            if node in context.done:
                break
            context.rule = rule
            found = visit(node, context)
            findings += [found] if isinstance(found, Finding) else found or []
        if isinstance(node, ast.Attribute) and node in context.done and context.name(node):
            context.done.add(node.value)  # the rest of a dotted name
    return findings


def _settled(findings: list[Finding]) -> list[Finding]:
    """Leave every finding of a group in which one is left: a name is ported everywhere or nowhere."""
    left, why = {f.group for f in findings if f.level is Level.REPORTED}, "another use of it cannot be ported"
    return [f.left(why) if f.group and f.group in left and f.edits else f for f in findings]


class _Names:
    """The names under which a module knows torch and get_accelerator, or will know them."""

    def __init__(self, module: Module, target: str) -> None:
        top = module.module_scope.bindings
        imported = {b.imported: name for name, bindings in reversed(top.items()) for b in bindings}
        torch = imported.get("torch")
        known = next((name for full, name in imported.items() if full.endswith(".get_accelerator")), None)
        taken = any("get_accelerator" in scope.uses for scope in module.scopes.values())
        free = "_get_accelerator" if "get_accelerator" in top or taken else "get_accelerator"
        self.has_torch = torch is not None
        self.target = PortTarget.of(target, torch or "torch", known or free)
        self._lines = {
            "torch": "" if torch else "import torch",
            "accel_core": "" if imported.get("accel_core") == "accel_core" else "import accel_core",
            "accelerator": "" if known else self.target.import_line,
        }

    def missing(self, needs: set[str]) -> list[str]:
        """Return the lines of imports that are needed and not there."""
        return [line for name, line in self._lines.items() if line and name in needs]


class _Imports:
    """The import statements of a module: which of their names the port makes unused, and where new ones go."""

    def __init__(self, module: Module, context: Context, names: _Names, shared: frozenset[str]) -> None:
        self._module = module
        self._context = context
        self._names = names
        exports = [b.node for b in module.module_scope.bindings.get("__all__", [])]
        parts = (part for node in exports for part in ast.walk(node))
        self._shared = shared
        self._exported = {part.value for part in parts if isinstance(part, ast.Constant)} | shared

    def settle(self, findings: list[Finding]) -> tuple[list[Finding], list[Edit]]:
        """Return the findings that remain, those of imports among them, and the edits that add imports."""
        replaced = [edit for finding in findings for edit in finding.edits]
        for statement in self._module.nodes:
            match statement:
                case ast.ImportFrom(module=str(name)) if name.startswith("torch.cuda.amp"):
                    findings = self._amp(statement, findings)
                case ast.Import() | ast.ImportFrom():
                    findings += self._unused(statement, replaced)
        needs = {need for finding in findings for need in finding.needs}
        return findings, self._added(needs, [edit for finding in findings for edit in finding.edits])

    def _amp(self, statement: ast.ImportFrom, findings: list[Finding]) -> list[Finding]:
        """Turn `from torch.cuda.amp import …` into torch.amp's, with all uses of its names or with none."""
        names = [alias.asname or alias.name for alias in statement.names]
        bindings = self._module.module_scope.bindings
        # Names with a fallback for older versions of torch stay, and those that other modules import from here.
        stay = any(len(bindings.get(name, [])) > 1 or name in self._exported for name in names)
        groups = {f"name:{name}" for name in names}
        known = {alias.name for alias in statement.names} <= words(
            "autocast GradScaler custom_fwd custom_bwd"
        )
        unused = not any(self._module.module_scope.uses.get(name) for name in names)
        if (
            stay
            or unused
            or not known
            or any(f.level is Level.REPORTED for f in findings if f.group in groups)
        ):
            return [f.left("its import stays") if f.group in groups and f.edits else f for f in findings]
        module = statement.module or ""
        start = self._module.text.index(module, self._module.span(statement)[0] + len("from "))
        return [*findings, self._finding(statement, [Edit(start, start + len(module), "torch.amp")])]

    def _unused(self, statement: ast.Import | ast.ImportFrom, replaced: list[Edit]) -> list[Finding]:
        gone = []
        for alias in statement.names:
            full = alias.name if isinstance(statement, ast.Import) else f"{statement.module}.{alias.name}"
            if not full.startswith("torch.cuda"):
                continue
            if isinstance(statement, ast.Import) and alias.asname is None:
                if self._names.has_torch and self._is_bound_elsewhere(statement):
                    gone.append(alias)
                elif len(statement.names) == 1:
                    return [self._finding(statement, [self._context.edit(alias, "torch")])]
                continue
            name = alias.asname or alias.name
            uses = self._module.module_scope.uses.get(name, [])
            if uses and name not in self._exported and all(self._covered(use, replaced) for use in uses):
                gone.append(alias)
        shared = any((alias.asname or alias.name) in self._shared for alias in statement.names)
        if shared and isinstance(statement, ast.ImportFrom) and "torch.cuda" in str(statement.module):
            self._context.rule = ImportRule()
            edits, level = self._without(statement, gone) if gone else [], Level.REVIEW if gone else None
            message = "other files have names of torch.cuda from this one: they stay"
            return [self._context.finding(statement, edits, level, "port those files by hand", message)]
        if not gone:
            return []
        block = self._module.block(statement)
        if len(gone) < len(statement.names):
            return [self._finding(statement, self._without(statement, gone))]
        if len(block) == 1 or not self._module.alone(statement):
            return []  # a block must keep a statement
        return [self._finding(statement, [self._whole_line(statement)])]

    def _is_bound_elsewhere(self, statement: ast.Import) -> bool:
        reached = [*self._module.tree.body, *self._module.block(statement)]
        bindings = self._module.module_scope.bindings.get("torch", [])
        return any(b.kind == "import" and b.node is not statement and b.node in reached for b in bindings)

    def _covered(self, use: ast.Name, replaced: list[Edit]) -> bool:
        start, end = self._module.span(use)
        return any(edit.start <= start and end <= edit.end for edit in replaced)

    def _without(self, statement: ast.Import | ast.ImportFrom, gone: list[ast.alias]) -> list[Edit]:
        span, names = self._module.span, statement.names
        last = max(at for at, alias in enumerate(names) if alias not in gone)
        edits = [
            Edit(span(alias)[0], span(following)[0], "")
            for alias, following in pairwise(names[: last + 1])
            if alias in gone
        ]
        return [*edits, Edit(span(names[last])[1], span(names[-1])[1], "")]

    def _whole_line(self, statement: ast.stmt) -> Edit:
        start, end = self._module.span(statement)
        text = self._module.text
        start -= len(text[:start]) - len(text[:start].rstrip(" \t"))
        ending = re.match(r"[ \t]*(\r\n|\n|\r)?", text[end:])
        return Edit(start, end + (ending.end() if ending else 0), "")

    def _finding(self, statement: ast.stmt, edits: list[Edit]) -> Finding:
        self._context.rule = ImportRule()
        return self._context.finding(statement, edits)

    def _added(self, needs: set[str], edits: list[Edit]) -> list[Edit]:
        lines = self._names.missing(needs)
        if not lines:
            return []
        newline = self._module.newline
        after = self._last_import()
        if after is not None:
            at = self._module.end_of_line(self._module.span(after)[1])
            gone = next((edit for edit in edits if edit.start <= at < edit.end), None)
            if gone is not None:
                return [Edit(gone.start, gone.start, "".join(line + newline for line in lines))]
            return [Edit(at, at, "".join(newline + line for line in lines))]
        docstring = self._end_of_docstring()
        if docstring is not None:
            return [Edit(docstring, docstring, "".join(newline + line for line in lines))]
        first = self._module.tree.body[0]
        decorators = getattr(first, "decorator_list", [])
        at = self._module.offset(decorators[0].lineno if decorators else first.lineno, 0)
        return [Edit(at, at, "".join(line + newline for line in lines))]

    def _last_import(self) -> ast.stmt | None:
        """Return the last statement of the block of imports that has torch, or of the first block."""
        blocks: list[list[ast.stmt]] = [[]]
        for statement in self._module.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                blocks[-1].append(statement)
            elif blocks[-1]:
                blocks.append([])
        blocks = [block for block in blocks if block and self._module.alone(block[-1])]
        bindings = (b for bound in self._module.module_scope.bindings.values() for b in bound)
        torch = {b.node for b in bindings if b.imported.partition(".")[0] == "torch"}
        of_torch = (block for block in blocks if torch & set(block))
        block = next(of_torch, blocks[0] if blocks else None)
        return block[-1] if block else None

    def _end_of_docstring(self) -> int | None:
        first = self._module.tree.body[0]
        value = first.value if isinstance(first, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return self._module.end_of_line(self._module.span(first)[1])
        return None


class ImportRule(Rule, name="imports", levels=ANY):
    """An import of torch.cuda's names goes, or becomes torch.amp's, when no use is left."""
