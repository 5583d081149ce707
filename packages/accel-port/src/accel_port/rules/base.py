# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rules, their findings, and the facts about the module that they read."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from accel_port.expressions import PRIMARY, is_cuda_text, keyword, texts_in, words
from accel_port.kinds import Kind, Kinds
from accel_port.syntax import Module
from accel_port.targets import PortTarget


class Level(str, Enum):
    """How sure a rule is."""

    REWRITTEN = "rewritten"
    REVIEW = "review"  # rewritten, and a person should look at it
    REPORTED = "reported"  # left as it is


ANY = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)


@dataclass(frozen=True)
class Edit:
    """The text between two indices becomes another text."""

    start: int
    end: int
    text: str


class Unstable(Exception):
    """The ported text does not parse, or a second run would change it: a fault of this program."""


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits, which may touch and must not overlap. Raises `Unstable`."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at:
            raise Unstable(f"two changes of the text overlap at {edit.start}: {edit.text!r}")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


@dataclass(frozen=True)
class Finding:
    """One use of CUDA, with what becomes of it. `start` and `end` are indices in the text."""

    rule: str
    level: Level
    start: int
    end: int
    message: str
    advice: str = ""
    edits: tuple[Edit, ...] = ()
    needs: frozenset[str] = frozenset()  # of "accelerator", "torch", "accel_core"
    group: str = ""  # findings of one group are ported together or not at all

    def left(self, why: str) -> Finding:
        """Return the finding with nothing changed, for a reason."""
        message = f"{self.message.rstrip('.')}; {why}"
        return replace(self, level=Level.REPORTED, edits=(), needs=frozenset(), message=message)


@dataclass(frozen=True)
class OwnName:
    """A class of the scanned files that has a method or attribute cuda, is_cuda or pin_memory of its own."""

    name: str
    owner: str
    folder: str  # of the file; what lies below may have its objects


@dataclass(frozen=True)
class ProjectFacts:
    """Facts of all scanned files: names that their classes define, and the modules that they are."""

    own_names: frozenset[OwnName] = frozenset()
    modules: frozenset[str] = frozenset()  # first parts of their names
    shared: frozenset[str] = frozenset()  # what one file has from torch.cuda, and another from that file

    @staticmethod
    def of(text: str, folder: str = "") -> frozenset[OwnName]:
        """Return the own names of one file."""
        if not _OWN_NAME.search(text):
            return frozenset()
        found, owner = set(), ""
        for match in re.finditer(f"{_CLASS}|{_OWN_NAME.pattern}", text, re.MULTILINE):
            owner = match["owner"] or owner
            if name := match["method"] or match["attribute"]:
                found.add(OwnName(name, owner, folder))
        return frozenset(found)

    def names_near(self, module: Module, folder: str) -> frozenset[str]:
        """Return the names that objects in a file may define themselves: it names the class, or lies next to it."""
        # A program that imports no other module of the files has no objects of their classes.
        bindings = [b for bs in module.module_scope.bindings.values() for b in bs if b.imported]
        imported = {name.partition(".")[0] for name in (*module.stars, *(b.imported for b in bindings))}
        imported.discard("torch")  # a folder of that name is not what is meant
        alone = is_script(module) and not imported & (self.modules | {""})
        return frozenset(
            own.name
            for own in self.own_names
            if (not alone and _is_below(folder, own.folder))
            or (own.owner and re.search(rf"\b{re.escape(own.owner)}\b", module.text))
        )


def is_script(module: Module) -> bool:
    """Return whether a module does something when it is run: it has a main block, or loops and calls."""
    if "__main__" in module.text or re.search(r"^import (pytest|unittest)", module.text, re.MULTILINE):
        return True
    work = (ast.For, ast.While, ast.With)
    return any(
        isinstance(s, work) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call))
        for s in module.tree.body
    )


def _is_below(folder: str, above: str) -> bool:
    return folder == above or folder.startswith(above.rstrip("/\\") + os.sep) if above else True


_OWN_NAME = re.compile(
    r"def +(?P<method>cuda|is_cuda|pin_memory)\s*\(\s*self|self\.(?P<attribute>is_cuda)\s*=[^=]"
)
_CLASS = r"^[ \t]*class +(?P<owner>\w+)"
_FLAG = re.compile(r"cuda|gpu", re.IGNORECASE)
_MAKES_CUDA = re.compile(r"""[\[(]?([\w.]*\bdevice\(\s*(type=)?)?[fF]?["']cuda[:"']""")
_KEEP = re.compile(r"#\s*accel:\s*keep\b|#\s*ignore-cuda\b")
#: In them an expression needs no parentheses, and one of `and` does not either in the others.
_LOOSE = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If, ast.While, ast.Call, ast.keyword, ast.List, ast.Tuple,
)  # fmt: skip
_AROUND_AND = (*_LOOSE, ast.IfExp, ast.BoolOp, ast.Assert)
#: What is in them may be passed by.
_MAY_NOT_RUN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Try,
    ast.ExceptHandler, ast.match_case, ast.comprehension, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def _evaluated_at_import(node: ast.AST, module: Module) -> bool:
    below = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.arguments):
            function = module.parents[parent]
            return module.function(function) is None
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            decorators = getattr(parent, "decorator_list", [])
            return below in decorators and module.function(parent) is None
        if isinstance(parent, ast.ClassDef):
            return module.function(parent) is None
        below = parent
    return False


_SCRIPTS = words("torch.jit.script torch.jit.script_method")


class Context:
    """The module that is ported, for a target, and questions about it."""

    def __init__(self, module: Module, target: PortTarget, own_names: frozenset[str]) -> None:
        self.module = module
        self.target = target
        self.own_names = own_names  # of cuda, is_cuda, pin_memory: methods of the program's classes
        self.kinds = Kinds(module)
        self.rule: Rule  # that is asked
        self.done: set[ast.AST] = set()  # nodes that a rule has dealt with
        self.opened: set[ast.AST] = set()  # f-strings that are replaced by what is in them
        self.seen: set[str] = set()  # what is reported once a file
        self.uses_torch = bool(re.search(r"\btorch\b|cuda", module.text))
        self._flags = self._flags_set_from_is_available()
        made = [n for n in module.nodes if isinstance(n, ast.Assign) and self._makes_cuda(n.value)]
        self._devices = {getattr(t, "id", getattr(t, "attr", "")) for n in made for t in n.targets}
        self._needs = {
            "accelerator": re.compile(re.escape(target.accelerator)),
            "torch": re.compile(rf"(?<![\w.]){re.escape(target.torch)}\."),
            "accel_core": re.compile(r"accel_core\."),
        }
        self.is_library = not is_script(module)
        calls = [n for n in module.nodes if isinstance(n, ast.Call) and self.name(n.func) in _SCRIPTS]
        self._scripted = {arg.id for call in calls for arg in call.args if isinstance(arg, ast.Name)}
        hard = [node for node in module.nodes if self._needs_cuda(node)]
        self.may_run_on_cpu = not hard
        self.may_be_imported_on_cpu = all(self.calls(node, "torch.device") for node in hard)

    # Names

    def name(self, node: ast.AST | None) -> str:
        """Return the dotted name behind an expression, as `torch.cuda.synchronize`; empty if unknown."""
        return self.module.qualified(node)

    def cuda_name(self, node: ast.AST | None) -> str:
        """Return the part after `torch.cuda.`; empty if it is another name."""
        name = self.name(node)
        return name[len("torch.cuda.") :] if name.startswith("torch.cuda.") else ""

    def calls(self, node: ast.AST | None, *names: str) -> bool:
        """Return whether an expression calls one of these functions, as `torch.device`."""
        return isinstance(node, ast.Call) and self.name(node.func) in names

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the parent of a node."""
        return self.module.parents.get(node)

    def local(self, node: ast.AST) -> bool:
        """Return whether a name is a function or class of this module."""
        return isinstance(node, ast.Name) and any(b.kind == "def" for b in self.module.bindings(node))

    def is_called(self, node: ast.AST) -> bool:
        """Return whether an expression is what a call calls."""
        parent = self.parent(node)
        return isinstance(parent, ast.Call) and parent.func is node

    def receives(self, node: ast.AST) -> tuple[ast.Call | None, str | int]:
        """Return the call that an expression is an argument of, with the keyword or the position."""
        above: ast.AST | None
        match above := self.parent(node):
            case ast.Call(args=args) if node in args:
                return above, args.index(node)
            case ast.keyword(arg=name) if isinstance(call := self.parent(above), ast.Call):
                return call, name or "**"
        return None, ""

    def choice(self, node: ast.AST) -> ast.AST:
        """Return the outermost choice `a if b else c` that an expression is a branch of, or the expression."""
        while isinstance(above := self.parent(node), ast.IfExp) and above.test is not node:
            node = above
        return node

    def stands_alone(self, node: ast.AST) -> bool:
        """Return whether an expression at the place of a node needs no parentheses, unless it is a tuple."""
        return isinstance(self.parent(node), _LOOSE)

    def tests_cuda(self, test: ast.AST) -> bool:
        """Return whether a condition holds only where torch.cuda is available, or a flag of the program says so."""
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                return any(self.tests_cuda(value) for value in values)
            case ast.BoolOp(op=ast.Or(), values=values):
                return all(self.tests_cuda(value) for value in values)
            case ast.Call():
                return self.calls(test, "torch.cuda.is_available")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                if isinstance(op, ast.Eq) and is_cuda_text(right) and not is_cuda_text(left):
                    return True
                counted = self.calls(left, "torch.cuda.device_count")
                return counted and isinstance(op, (ast.Gt, ast.GtE, ast.NotEq))
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self._flags or bool(_FLAG.search(name))
        return False

    def denies_cuda(self, test: ast.AST) -> bool:
        """Return whether a condition holds wherever torch.cuda is not available: `not available or …`."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.tests_cuda(operand)
            case ast.BoolOp(op=ast.Or(), values=values):
                return any(self.denies_cuda(value) for value in values)
        return False

    def guarded(self, node: ast.AST) -> bool:
        """Return whether an expression is evaluated only where the program has seen a CUDA device."""
        below = node
        for parent in self.module.ancestors(node):
            if isinstance(parent, (ast.IfExp, ast.If, ast.While)):
                if _holds(parent.body, below) and self.tests_cuda(parent.test):
                    return True
                if _holds(parent.orelse, below) and self.denies_cuda(parent.test):
                    return True
            elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
                before = parent.values[: parent.values.index(below)]  # type: ignore[arg-type]
                if any(self.tests_cuda(value) for value in before):
                    return True
            if isinstance(below, ast.stmt) and self._left_before(below):
                return True
            below = parent
        return False

    def anywhere(self, node: ast.AST) -> bool:
        """Return whether an expression may be evaluated where there is no device."""
        return self.may_run_on_cpu and not self.guarded(node)

    def may_move(self, receiver: ast.expr) -> bool:
        """Return whether the receiver of `.cuda()` is not an object of a class that defines `cuda` itself."""
        return "cuda" not in self.own_names or self.kinds.of(receiver) in (Kind.TENSOR, Kind.MODULE)

    def harmless(self, statements: Iterable[ast.stmt]) -> bool:
        """Return whether statements change nothing on the CPU once they are ported: they place and wait."""
        return all(self._harmless(each) and not self.keeps(*self.module.span(each)) for each in statements)

    def _harmless(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Call() as call):
                waits = self.cuda_name(call.func) in _WAITS and all(map(_is_plain, _passed(call)))
                return waits or self._moves(call)
            case ast.Assign(targets=[ast.Tuple(elts=places)], value=ast.Tuple(elts=moved)):
                pairs = list(zip(places, moved, strict=False))
                return len(places) == len(moved) and all(self._moves(call, place) for place, call in pairs)
            case ast.Assign(targets=[place], value=call):
                return self._moves(call, place)
        return False

    def _moves(self, call: ast.expr, place: ast.expr | None = None) -> bool:
        """Return whether a call does no more than move `x`, which is assigned to itself or to nothing."""
        match call:
            case ast.Call(func=ast.Attribute(value=x, attr="cuda" | "to" as method) as func):
                names = ("device", "non_blocking" if method == "cuda" else "dtype")
                given = [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
                flags = [value for name, value in given if name == "non_blocking"]
                places = [value for name, value in given if name == "device"]
                known = len(flags) + len(places) == len(given) and all(map(self._is_device, places))
                known &= all(self.kinds.of(flag) is Kind.TRUTH for flag in flags)
                same = place is None or self.module.code(place) == self.module.code(x)
                moves = self.may_move(x) if method == "cuda" else "device" in dict(given)
                return known and same and moves and _is_plain(x) and not self.name(func)
        return False

    def _is_device(self, node: ast.expr) -> bool:
        """Return whether the port makes an expression the accelerator's device."""
        if self.calls(node, "torch.device"):
            assert isinstance(node, ast.Call)
            return is_cuda_text(next(iter(node.args), None)) and all(map(_is_plain, _passed(node)))
        kind = self.kinds.of(node) if _is_plain(node) else None
        named = kind is Kind.DEVICE and isinstance(node, ast.Name)
        return named or kind is Kind.INDEX or is_cuda_text(node)

    def keeps(self, start: int, end: int) -> bool:
        """Return whether a line between two indices is marked as one that stays."""
        first, last = self.module.place(start)[0], self.module.place(end)[0]
        return any(_KEEP.search(self.module.line(number)) for number in range(first, last + 1))

    def is_cuda_device(self, node: ast.expr) -> bool:
        """Return whether the program makes an expression, or what it is the text of, a CUDA device anywhere."""
        match node:
            case ast.Attribute(attr="type" | "index"):
                return self.is_cuda_device(node.value)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self._devices
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                return self.is_cuda_device(inner)
        return self.calls(node, "torch.device") and self._makes_cuda(node)

    def _makes_cuda(self, value: ast.expr) -> bool:
        code = self.module.code(value)
        return bool(_MAKES_CUDA.match(code)) and " if " not in code and not self.guarded(value)

    def edit(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that replaces a node."""
        return Edit(*self.module.span(node), text)

    def around(
        self, inner: ast.AST, before: str = "", after: str = "", outer: ast.AST | None = None
    ) -> list[Edit]:
        """Return the edits that put texts around an expression, in place of what an outer one has around it."""
        if after.startswith(".") and not isinstance(inner, PRIMARY):
            before, after = f"{before}(", f"){after}"
        start, end = self.module.span(outer or inner)
        inner_start, inner_end = self.module.span(inner)
        edits = [Edit(start, inner_start, before), Edit(inner_end, end, after)]
        return [edit for edit in edits if edit.start != edit.end or edit.text]

    def named_device(self, index: ast.AST, outer: ast.AST | None = None) -> list[Edit]:
        """Return the edits that make an index, or an outer expression that holds it, the name of its device."""
        if self.calls(index, "torch.cuda.current_device"):
            self.take(index)
            return [self.edit(outer or index, self.target.current_device)]
        before, after = self.target.indexed("\0").split("\0")
        return self.around(index, before, after, outer)

    def first_argument(self, call: ast.Call, text: str) -> Edit:
        """Return the edit that gives a call a first argument."""
        at = self.module.text.index("(", self.module.span(call.func)[1]) + 1
        return Edit(at, at, f"{text}, " if call.args or call.keywords else text)

    def take(self, *nodes: ast.AST) -> None:
        """Add nodes with everything in them to those that are dealt with."""
        self.done.update(part for node in nodes for part in ast.walk(node))

    def finding(
        self,
        node: ast.AST,
        edits: Iterable[Edit] = (),
        level: Level | None = None,
        advice: str = "",
        message: str = "",
        group: str = "",
    ) -> Finding:
        """Return what the rule finds at a node; what the edits need to be imported is read from their text."""
        edits = self._quoted(node, tuple(edits))
        self.done.add(node)
        start, end = self.module.span(node)
        level = level or (Level.REWRITTEN if edits else Level.REPORTED)
        written = " ".join(edit.text for edit in edits)
        needs = frozenset(name for name, used in self._needs.items() if used.search(written))
        message = message or self.rule.summary
        found = Finding(self.rule.name, level, start, end, message, advice, edits, needs, group)
        if edits and self._is_scripted(node):
            return found.left("torch.jit.script does not know the accelerator: rewrite the function by hand")
        if not self._fits_in_its_text(node, edits):
            return found.left("the position inside of the f-string is not certain: rewrite it by hand")
        if "accelerator" in needs and isinstance(node, ast.expr) and _evaluated_at_import(node, self.module):
            advice = "it is evaluated at import, before set_accelerator(): make it inside of the function"
            if self.is_library:
                return found.left(advice)
            return replace(found, level=Level.REVIEW, advice=found.advice or advice)
        return found

    def rewrite(
        self,
        node: ast.AST,
        text: str,
        level: Level | None = None,
        advice: str = "",
        message: str = "",
        group: str = "",
    ) -> Finding:
        """Return the finding that replaces a node."""
        return self.finding(node, [self.edit(node, text)], level, advice, message, group)

    def report(self, node: ast.AST, message: str, advice: str = "", group: str = "") -> Finding:
        """Return a finding that changes nothing."""
        return self.finding(node, advice=advice, message=message, group=group)

    def only_on_device(self, node: ast.AST, edits: Iterable[Edit]) -> list[Edit]:
        """Return the edits that make a condition false on the CPU."""
        loose = isinstance(self.parent(node), _AROUND_AND)
        before, after = ("", "") if loose else ("(", ")")
        return merged([*self.around(node, f"{before}{self.target.has_device} and ", after), *edits])

    def called_on_device(self, call: ast.expr, edits: list[Edit], otherwise: str = "None") -> Finding:
        """Return the finding that evaluates a call only where there is a device, as a statement or an expression."""
        module, condition = self.module, self.target.has_device
        statement = module.statement(call)
        start, end = module.span(call)
        if isinstance(statement, ast.Expr) and statement.value is call and module.alone(statement):
            line = module.text[: module.span(statement)[0]]
            indent = line[len(line.rstrip(" \t")) :]
            step = "\t" if indent.startswith("\t") else "    "
            before, after = f"if {condition}:{module.newline}{indent}{step}", []
        else:
            before, close = ("", "") if self.stands_alone(call) else ("(", ")")
            after = [Edit(end, end, f" if {condition} else {otherwise}{close}")]
        return self.finding(call, merged([Edit(start, start, before), *edits, *after]))

    def _is_scripted(self, node: ast.AST) -> bool:
        above = (a for a in self.module.ancestors(node) if isinstance(a, (ast.FunctionDef, ast.ClassDef)))
        return any(
            scope.name in self._scripted or any(self.name(d) in _SCRIPTS for d in scope.decorator_list)
            for scope in above
        )

    def _quoted(self, node: ast.AST, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """Return edits with the other quotes in an f-string of `"`: before Python 3.12 it cannot hold its own."""
        if self._quote_around(node) != '"' or any("'" in edit.text for edit in edits):
            return edits
        return tuple(replace(edit, text=edit.text.replace('"', "'")) for edit in edits)

    def _quote_around(self, node: ast.AST) -> str:
        """Return the quote of the f-string around an expression, both where texts are joined, else nothing."""
        above = (a for a in self.module.ancestors(node) if isinstance(a, ast.JoinedStr))
        outer = next((a for a in above if a not in self.opened), None)
        if outer is None:
            return ""
        code = self.module.code(outer)
        return "'\"" if texts_in(code) > 1 else code.lstrip("rRbBfFuU")[:1]

    def _fits_in_its_text(self, node: ast.AST, edits: tuple[Edit, ...]) -> bool:
        quote = self._quote_around(node)
        if not quote or not edits:
            return True
        return self.module.read_exactly(node) and not any(set(quote) & set(edit.text) for edit in edits)

    def _needs_cuda(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        device = keyword(node, "device")
        hard = (
            (isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not self.name(node.func))
            or self.calls(node, "torch.cuda.set_device", "torch.cuda.synchronize")
            or (self.calls(node, "torch.device") and bool(node.args) and is_cuda_text(node.args[0]))
            or (device is not None and is_cuda_text(device.value) and self._makes_tensors(node))
        )
        return hard and not any(isinstance(above, _MAY_NOT_RUN) for above in self.module.ancestors(node))

    def _makes_tensors(self, call: ast.Call) -> bool:
        """Return whether a call with device= needs the device: a method, or torch's, that does more than name it."""
        name = self.name(call.func)
        named = name.endswith(("torch.device", "autocast", "GradScaler"))
        return not named and (
            name.startswith("torch.") or (not name and isinstance(call.func, ast.Attribute))
        )

    def _flags_set_from_is_available(self) -> set[str]:
        return {
            target.id if isinstance(target, ast.Name) else target.attr
            for node in self.module.nodes
            if isinstance(node, ast.Assign) and self._holds_is_available(node.value)
            for target in node.targets
            if isinstance(target, (ast.Name, ast.Attribute))
        }

    def _holds_is_available(self, value: ast.expr) -> bool:
        if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
            return any(self._holds_is_available(v) for v in value.values)
        return self.calls(value, "torch.cuda.is_available")

    def _left_before(self, statement: ast.stmt) -> bool:
        block = self.module.block(statement)
        for earlier in block[: block.index(statement)]:
            match earlier:
                case ast.Assert(test=test) if self.tests_cuda(test):
                    return True
                case ast.If(test=test, body=[*_, last], orelse=[]) if self.denies_cuda(test) and self._ends(
                    last
                ):
                    return True
        return False

    def _ends(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                return True
            case ast.Expr(value=ast.Call(func=ast.Name(id="exit" | "quit"))):
                return True
        return isinstance(statement, ast.Expr) and self.calls(statement.value, "sys.exit", "os._exit")


def _holds(body: ast.expr | list[ast.stmt], node: ast.AST) -> bool:
    return node in body if isinstance(body, list) else node is body


_WAITS = words("synchronize empty_cache set_device reset_peak_memory_stats reset_max_memory_allocated")


def _passed(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _is_plain(node: ast.expr) -> bool:
    """Return whether an expression only reads names, attributes, items and constants."""
    plain = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
    return all(isinstance(part, plain) for part in ast.walk(node))


def merged(edits: list[Edit]) -> list[Edit]:
    """Join edits that touch, in the order of the text."""
    joined: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if joined and joined[-1].end == edit.start:
            joined[-1] = Edit(joined[-1].start, edit.end, joined[-1].text + edit.text)
        else:
            joined.append(edit)
    return joined


Found = Finding | list[Finding] | None


class Rule:
    """One subject of a port: a method `visit_X(node, context) -> Found` for each type X of nodes that it looks at.

    A rule sees outer nodes first, unless another rule took them. What it has dealt with it adds to `context.done`. Its
    sentence is its docstring; docs/port-rules.md has reasons and examples.
    """

    name: ClassVar[str]
    levels: ClassVar[tuple[Level, ...]]
    summary: ClassVar[str]

    def __init_subclass__(cls, name: str, levels: tuple[Level, ...] = (Level.REWRITTEN,)) -> None:
        cls.name, cls.levels, cls.summary = name, levels, cls.__doc__ or ""
