# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Questions about a device: `is_cuda`, and comparisons with "cuda"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accel_port.expressions import OTHER_DEVICES, device_index, is_constant, is_cuda_text, words
from accel_port.kinds import OPTION_OBJECTS, Kind
from accel_port.rules.base import ANY, Context, Edit, Found, Level, Rule

_KERNELS = re.compile(
    r"apex|triton|flash|_C\b|_cuda|cuda_|kernel|_ext\b|ext_|fused|xformers|cupy|numba|bitsandbytes"
)
_CHECK = "check the branch on the CPU"
_LOOKUPS = words("index get count pop remove discard setdefault")


class IsCuda(Rule, name="is-cuda", levels=ANY):
    """`x.is_cuda` asks whether the tensor is on the accelerator."""

    def visit_Attribute(self, node: ast.Attribute, context: Context) -> Found:
        if node.attr != "is_cuda" or isinstance(node.ctx, (ast.Store, ast.Del)) or context.name(node):
            return None
        if "is_cuda" in context.own_names and context.kinds.of(node.value) is not Kind.TENSOR:
            return context.report(node, "a class of these files has its own is_cuda", "look at it")
        if (guarded := guards_kernel(node, context)) is not None:
            advice = "keep it: on other devices the condition is false"
            return context.report(node, f"it guards {guarded}, which is CUDA's", advice)
        if not context.target.is_torch and branch_is_harmless(node, context):
            return context.finding(
                node, context.around(node.value, f"{context.target.accelerator}.on_accelerator(", ")", node)
            )
        context.done.add(node)
        whole: ast.AST = node
        before, after = "", '.device.type != "cpu"'
        match context.parent(node):
            case ast.UnaryOp(op=ast.Not()) as negated:
                whole, after = negated, '.device.type == "cpu"'
            case ast.UnaryOp() | ast.Compare() | ast.BinOp() | ast.Attribute():
                before, after = "(", f"{after})"
        level = None if context.target.is_torch else Level.REVIEW
        return context.finding(whole, context.around(node.value, before, after, whole), level)


class DeviceComparison(Rule, name="comparison", levels=(Level.REVIEW, Level.REPORTED)):
    """A device that was compared with CUDA is compared with the accelerator, or with the CPU."""

    def visit_Compare(self, node: ast.Compare, context: Context) -> Found:
        left, op, right = node.left, node.ops[0], node.comparators[0]
        sides = [left, *node.comparators]
        parts = [item for side in sides for item in getattr(side, "elts", [side])]
        made = [p for p in parts if context.is_cuda_device(p) or (is_cuda_text(p) and p not in sides)]
        looked_up = all(isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for op in node.ops)
        if looked_up and made and not any(map(is_cuda_text, sides)):
            direct = isinstance(op, ast.Eq) and any(context.calls(side, "torch.device") for side in made)
            if direct and len(parts) == 2 and guards_kernel(node, context) is None:
                return context.finding(node, context.only_on_device(node, []), Level.REVIEW, _CHECK)
            context.take(*made)
            context.done.update(sides)
            return context.report(node, "a device of CUDA, which is the CPU there, is looked up", _CHECK)
        if len(node.ops) != 1:
            return None
        text, other = (left, right) if is_cuda_text(left) or isinstance(op, ast.In) else (right, left)
        if not is_cuda_text(text) or not isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
            return None
        context.done.add(text)
        if self._is_users_word(other, context):
            advice = "change it together with the option that it is from"
            return context.report(node, "the user's word is compared", advice)
        if (guarded := guards_kernel(node, context)) is not None:
            advice = "keep it: the feature stays off on other devices"
            return context.report(node, f"it guards {guarded}, which is CUDA's", advice)
        if isinstance(op, (ast.NotEq, ast.NotIn)):
            return context.report(node, "a feature of CUDA is switched off", "keep it, or look at it")
        if self._has_sibling(node, context):
            advice = "put the accelerator's branch last, or keep the chain"
            return context.report(node, "one branch for each kind of device", advice)
        if not isinstance(other, (ast.Attribute, ast.Name, ast.Call)):
            return context.report(node, "a comparison with a text of CUDA", "look at it")
        if device_index(text):
            return context.report(node, "one device is meant", "compare torch.device(x).index")
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = [context.edit(text, context.target.device)]
        else:
            around = ('"cpu" not in ', "") if isinstance(op, ast.In) else ("", ' != "cpu"')
            edits = context.around(other, *around, node)
        return context.finding(node, edits, Level.REVIEW, _CHECK)

    def visit_Name(self, node: ast.expr, context: Context) -> Found:
        """Report a device that is a key, or one of a list with others."""
        parent, (call, _) = context.parent(node), context.receives(node)
        direct = context.calls(node, "torch.device")
        items = parent.elts if isinstance(parent, ast.List) and direct else []
        others = [i for i in items if context.calls(i, "torch.device") and not context.is_cuda_device(i)]
        key = node in getattr(parent, "keys", []) or (isinstance(parent, ast.Subscript) and direct)
        method = call is not None and getattr(call.func, "attr", "") in _LOOKUPS
        if not (key or others or method or isinstance(parent, ast.Set)) or not context.is_cuda_device(node):
            return None
        context.take(node)
        return context.report(node, "a device that is looked up", "add the accelerator's")

    visit_Attribute = visit_Name

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        func = node.func
        if context.calls(node, "torch.device"):
            return self.visit_Name(node, context)
        if not isinstance(func, ast.Attribute) or func.attr != "startswith" or len(node.args) != 1:
            return None
        text = node.args[0]
        if not is_constant(text, "cuda"):
            return None
        context.done.add(text)
        if self._is_users_word(func.value, context) or guards_kernel(node, context) is not None:
            return context.report(node, "the user's word, or a guard of CUDA's kernels", "look at it")
        if not context.target.is_torch and branch_is_harmless(node, context):
            return context.finding(node, [context.edit(text, context.target.device)], Level.REVIEW, _CHECK)
        if isinstance(context.parent(node), (ast.UnaryOp, ast.Compare, ast.BinOp, ast.Attribute)):
            return context.report(node, "a device's text is looked at", "use torch.device(x).type")
        start = context.module.span(node)[0]
        edits = [Edit(start, start, "not "), context.edit(text, '"cpu"')]
        return context.finding(node, edits, Level.REVIEW, _CHECK)

    @staticmethod
    def _is_users_word(other: ast.expr, context: Context) -> bool:
        match other:
            case ast.Subscript(value=value):
                return context.name(value) == "os.environ"
            case ast.Call(func=func):
                return context.name(func) in ("os.getenv", "os.environ.get")
            case ast.Attribute(value=ast.Name(id=name)):
                return name in OPTION_OBJECTS
        return False

    @staticmethod
    def _has_sibling(node: ast.Compare, context: Context) -> bool:
        """Return whether a condition belongs to a chain that asks for other kinds of devices, too."""
        first = context.module.statement(node)
        while isinstance(above := context.parent(first), ast.If) and above.orelse == [first]:
            first = above
        words = {
            part.value
            for link in _chain(first)
            for part in ast.walk(link.test)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        return bool(words & OTHER_DEVICES)


def _chain(statement: ast.stmt) -> Iterator[ast.If]:
    """Yield an `if` with the `elif`s that follow."""
    while isinstance(statement, ast.If):
        yield statement
        if len(statement.orelse) != 1:
            return
        statement = statement.orelse[0]


def branch_is_harmless(node: ast.AST, context: Context) -> bool:
    """Return whether a condition decides nothing that matters on the CPU."""
    match context.parent(node):
        case ast.Assert():
            return True
        case ast.If(test=test, body=body, orelse=[]) if test is node:
            return context.harmless(body)
    return False


def guards_kernel(node: ast.AST, context: Context) -> str | None:
    """Return the function of a CUDA library that a condition guards; None if it guards none."""
    below = node
    for parent in context.module.ancestors(node):
        if isinstance(parent, ast.BoolOp) and (found := launches_kernel(parent.values, context)):
            return found
        if isinstance(parent, (ast.If, ast.IfExp)) and below is parent.test:
            return launches_kernel(parent.body if isinstance(parent.body, list) else [parent.body], context)
        if isinstance(parent, ast.stmt):
            return None
        below = parent
    return None


def launches_kernel(body: Iterable[ast.AST], context: Context) -> str | None:
    """Return the function of a CUDA library that code calls; None if it calls none."""
    for part in (part for statement in body for part in ast.walk(statement) if isinstance(part, ast.Call)):
        name = context.name(part.func)
        if name and not name.startswith("torch.") and _KERNELS.search(name):
            return name
        if isinstance(part.func, ast.Subscript) and isinstance(part.func.value, ast.Name):
            return f"{part.func.value.id}[…]"  # a launch of Triton
    return None
