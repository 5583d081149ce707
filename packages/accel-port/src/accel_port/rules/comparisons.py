# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Questions about a device: `is_cuda`, and comparisons with "cuda"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accel_port.kinds import OPTION_OBJECTS, Kind
from accel_port.rules.base import (
    OTHER_DEVICES,
    Context,
    Edit,
    Finding,
    Level,
    Rule,
    device_index,
    is_constant,
    is_cuda_text,
)

_KERNELS = re.compile(
    r"apex|triton|flash|_C\b|_cuda|cuda_|kernel|_ext\b|ext_|fused|xformers|cupy|numba|bitsandbytes"
)


class IsCuda(Rule[ast.Attribute]):
    """`x.is_cuda` of tensors."""

    name = "is-cuda"
    summary = "`x.is_cuda` asks whether the tensor is on the accelerator."
    why = "On the CPU accelerator `on_accelerator(x)` is true where `is_cuda` was false."
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Attribute,)

    def find(self, node: ast.Attribute, context: Context) -> Iterator[Finding]:
        if node.attr != "is_cuda" or isinstance(node.ctx, (ast.Store, ast.Del)) or context.name(node):
            return
        context.done.add(node)
        if "is_cuda" in context.own_names and context.kinds.of(node.value) is not Kind.TENSOR:
            yield context.report(self, node, "a class of these files has an is_cuda of its own", "look at it")
            return
        if (guarded := guards_kernel(node, context)) is not None:
            advice = "keep it: on other devices the condition is false"
            yield context.report(self, node, f"it guards {guarded}, which is CUDA's", advice)
            return
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = context.around(node.value, f"{context.target.accelerator}.on_accelerator(", ")", node)
            yield context.finding(self, node, self.summary, edits)
            return
        parent = context.parent(node)
        whole: ast.AST = node
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            whole, around = parent, ("", '.device.type == "cpu"')
        elif isinstance(parent, (ast.UnaryOp, ast.Compare)):
            around = ("(", '.device.type != "cpu")')
        else:
            around = ("", '.device.type != "cpu"')
        edits = context.around(node.value, *around, whole)
        yield context.finding(
            self, whole, self.summary, edits, None if context.target.is_torch else Level.REVIEW
        )


class Comparison(Rule[ast.AST]):
    """Comparisons of a device with "cuda"."""

    name = "comparison"
    summary = "A device that was compared with CUDA is compared with the accelerator, or with the CPU."
    why = (
        "`== device_name()` is true on the CPU accelerator, too. It is written only where the branch changes nothing"
        ' there; elsewhere `!= "cpu"` is, which is false on the CPU as before.'
    )
    levels = (Level.REVIEW, Level.REPORTED)
    nodes = (ast.Compare, ast.Call)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            yield from self._starts_with(node, context)
            return
        assert isinstance(node, ast.Compare)
        if len(node.ops) != 1:
            return
        left, op, right = node.left, node.ops[0], node.comparators[0]
        if isinstance(op, (ast.In, ast.NotIn)):
            if isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                words = [item for item in right.elts if is_cuda_text(item)]
                if words:
                    context.done.update(words)
                    yield context.report(self, node, "a device is looked up in a list", "add the accelerator")
                return
            text, other = left, right
        else:
            text, other = (left, right) if is_cuda_text(left) else (right, left)
        if not is_cuda_text(text) or not isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
            return
        context.done.add(text)
        yield self._compared(node, text, other, op, context)

    def _compared(
        self, node: ast.Compare, text: ast.expr, other: ast.expr, op: ast.cmpop, context: Context
    ) -> Finding:
        if self._is_users_word(other, context):
            return context.report(
                self,
                node,
                "the user's word is compared",
                "change it together with the option that it is from",
            )
        if (guarded := guards_kernel(node, context)) is not None:
            advice = "keep it: the feature stays off on other devices"
            return context.report(self, node, f"it guards {guarded}, which is CUDA's", advice)
        if isinstance(op, (ast.NotEq, ast.NotIn)):
            return context.report(self, node, "a feature of CUDA is switched off", "keep it, or look at it")
        if self._has_sibling(node, context):
            advice = "put the accelerator's branch last, or keep the chain"
            return context.report(self, node, "one branch for each kind of device", advice)
        if not isinstance(other, (ast.Attribute, ast.Name, ast.Call)):
            return context.report(self, node, "a comparison with a text of CUDA", "look at it")
        if device_index(text):
            return context.report(self, node, "one device is meant", "compare torch.device(x).index")
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = [context.edit(text, context.target.device)]
        else:
            around = ('"cpu" not in ', "") if isinstance(op, ast.In) else ("", ' != "cpu"')
            edits = context.around(other, *around, node)
        return context.finding(self, node, self.summary, edits, Level.REVIEW, "check the branch on the CPU")

    def _starts_with(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "startswith" or len(node.args) != 1:
            return
        if not is_constant(node.args[0], "cuda"):
            return
        context.done.add(node.args[0])
        if self._is_users_word(func.value, context) or (guards_kernel(node, context) is not None):
            yield context.report(self, node, "the user's word, or a guard of CUDA's kernels", "look at it")
            return
        if not context.target.is_torch and branch_is_harmless(node, context):
            edits = [context.edit(node.args[0], context.target.device)]
        else:
            start = context.module.span(node)[0]
            parent = context.parent(node)
            if isinstance(parent, (ast.UnaryOp, ast.Compare)):
                yield context.report(self, node, "a device's text is looked at", "use torch.device(x).type")
                return
            edits = [Edit(start, start, "not "), context.edit(node.args[0], '"cpu"')]
        yield context.finding(self, node, self.summary, edits, Level.REVIEW, "check the branch on the CPU")

    @staticmethod
    def _is_users_word(other: ast.expr, context: Context) -> bool:
        if isinstance(other, ast.Subscript) and context.name(other.value) == "os.environ":
            return True
        if isinstance(other, ast.Call) and context.name(other.func) in ("os.getenv", "os.environ.get"):
            return True
        if not isinstance(other, ast.Attribute) or not isinstance(other.value, ast.Name):
            return False
        return other.value.id in OPTION_OBJECTS

    @staticmethod
    def _has_sibling(node: ast.Compare, context: Context) -> bool:
        statement = context.module.statement(node)
        if not isinstance(statement, ast.If):
            return False
        chain: list[ast.stmt] = [statement]
        above = context.parent(statement)
        while isinstance(above, ast.If) and above.orelse == [chain[-1]]:
            chain.append(above)
            above = context.parent(above)
        below = statement.orelse
        while len(below) == 1 and isinstance(below[0], ast.If):
            chain.append(below[0])
            below = below[0].orelse
        words = {
            part.value
            for link in chain
            if isinstance(link, ast.If)
            for part in ast.walk(link.test)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        return bool(words & OTHER_DEVICES)


def branch_is_harmless(node: ast.AST, context: Context) -> bool:
    """Return whether a condition decides nothing that matters on the CPU."""
    parent = context.parent(node)
    if isinstance(parent, ast.Assert):
        return True
    if isinstance(parent, ast.If) and parent.test is node and not parent.orelse:
        return context.harmless(parent.body)
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
