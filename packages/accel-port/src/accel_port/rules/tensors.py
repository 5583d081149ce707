# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Typed tensors of torch.cuda, as constructors, as types, and as the aliases that GAN programs keep."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_port.expressions import unseen, words
from accel_port.kinds import Kind
from accel_port.rules.base import ANY, Context, Edit, Finding, Found, Level, Rule

_DTYPES = {
    "FloatTensor": "float32",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "DoubleTensor": "float64",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "CharTensor": "int8",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
}


_HOST_TYPES = {dtype: {f"torch.{name}"} for name, dtype in _DTYPES.items()}
_HOST_TYPES["float32"].add("torch.Tensor")


class TypedTensor(Rule, name="typed-tensor", levels=ANY):
    """A typed tensor of CUDA becomes `torch.tensor`, `torch.empty` or `.to`, with dtype and device."""

    def visit_Attribute(self, node: ast.Attribute, context: Context) -> Found:
        if not _typed(node, context) or isinstance(node.ctx, (ast.Store, ast.Del)):
            return None
        return context.report(
            node, "a typed tensor, passed on as a value", "use a dtype and a device instead of a type"
        )

    def visit_Constant(self, node: ast.Constant, context: Context) -> Found:
        if not _named(node):
            return None
        return context.report(node, "the name of a typed tensor of CUDA", "use a dtype and a device")

    def visit_Call(self, node: ast.Call, context: Context) -> Found:
        dtype = _typed(node.func, context)
        torch, device = context.target.torch, context.target.device
        if dtype is not None:
            context.take(node.func)
            edits = self._made(node, f"dtype={torch}.{dtype}, device={device}", context)
            if edits is not None:
                return context.finding(node, edits)
            advice = "sizes: torch.empty(sizes, …); values: torch.tensor(values, …)"
            return context.report(node, "an argument that may be sizes or values", advice)
        match node:
            case ast.Call(func=ast.Attribute(attr="type") as func, args=[wanted], keywords=[]):
                if dtype := _typed(wanted, context) or _named(wanted):
                    context.take(wanted)
                    return context.finding(
                        node, self._moved(node, func, f"{device}, {torch}.{dtype}", context)
                    )
        return None

    def visit_Assign(self, node: ast.Assign, context: Context) -> Found:
        """Port `Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor` with all its uses."""
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return None
        name, value = node.targets[0], node.value
        choice = value if isinstance(value, ast.IfExp) else None
        typed = choice.body if choice else value
        dtype = _typed(typed, context)
        if dtype is None or (choice and context.name(choice.orelse) not in _HOST_TYPES[dtype]):
            return None
        context.take(typed)
        group = f"type:{name.id}:{node.lineno}"
        found = list(self._uses(name, context, group))
        settings = f"dict(dtype={context.target.torch}.{dtype}, device={context.target.device}"
        edits = [context.edit(value, f"{settings})")]
        if choice is not None:
            context.take(choice.orelse)
            if context.calls(choice.test, "torch.cuda.is_available") and not context.target.is_torch:
                context.take(choice.test)
            else:
                edits = context.around(choice.test, f"{settings} if ", ' else "cpu")', value)
        alone = len(context.module.bindings(name)) == 1
        level = Level.REVIEW if alone else Level.REPORTED
        message = f"{name.id} is now the settings of a tensor: dtype and device"
        edits = edits if alone else []
        return [context.finding(node, edits, level, "rename it if you like", message, group), *found]

    def _uses(self, name: ast.Name, context: Context, group: str) -> Iterator[Finding]:
        for use in context.module.uses(name):
            match context.parent(use):
                case ast.Assign(targets=[ast.Name() as other], value=value) if (
                    value is use and len(context.module.bindings(other)) == 1
                ):
                    context.done.add(use)
                    yield from self._uses(other, context, group)
                case _ if use is not name:
                    yield self._use(use, context, group)

    def _use(self, use: ast.Name, context: Context, group: str) -> Finding:
        call = context.parent(use)
        context.done.add(use)
        if isinstance(call, ast.Call) and call.func is use:
            edits = self._made(call, f"**{use.id}", context)
            if edits is not None:
                return context.finding(call, edits, group=group)
        receiver, where = context.receives(use)
        func = receiver.func if receiver is not None and where == 0 and len(receiver.args) == 1 else None
        if receiver is not None and isinstance(func, ast.Attribute) and func.attr == "type":
            return context.finding(receiver, self._moved(receiver, func, f"**{use.id}", context), group=group)
        return context.report(use, "an alias of a typed tensor, used in another way", group=group)

    @staticmethod
    def _moved(node: ast.Call, func: ast.Attribute, arguments: str, context: Context) -> list[Edit]:
        end = context.module.span(func)[1]
        return [Edit(end - len("type"), end, "to"), context.edit(node.args[0], arguments)]

    @staticmethod
    def _made(node: ast.Call, settings: str, context: Context) -> list[Edit] | None:
        """Return the edits that make a constructor's call a call of torch.tensor or torch.empty; None if unsure."""
        torch = context.target.torch
        if unseen(node) or node.keywords:
            return None
        if not node.args:
            return [context.edit(node, f"{torch}.empty(0, {settings})")]
        only = node.args[0] if len(node.args) == 1 else None
        if only is not None and _is_values(only, context):
            before, after = "tensor(", ""
        elif all(_is_size(given, context) for given in node.args):
            before, after = ("empty(", "") if only is not None else ("empty((", ")")
        else:
            return None
        start, end = context.module.span(node)
        first, last = context.module.span(node.args[0])[0], context.module.span(node.args[-1])[1]
        return [Edit(start, first, f"{torch}.{before}"), Edit(last, end, f"{after}, {settings})")]


def _typed(node: ast.AST, context: Context) -> str | None:
    return _DTYPES.get(context.cuda_name(node))


def _named(node: ast.expr) -> str | None:
    """Return the dtype in a text such as `"torch.cuda.FloatTensor"`."""
    text = node.value if isinstance(node, ast.Constant) else None
    is_name = isinstance(text, str) and text.startswith("torch.cuda.")
    return _DTYPES.get(str(text).removeprefix("torch.cuda.")) if is_name else None


def _is_size(node: ast.expr, context: Context) -> bool:
    if context.kinds.of(node) is Kind.INDEX:
        return True
    match node:
        case ast.Attribute(attr="shape") | ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim")):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_size(left, context) and _is_size(right, context)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in words("batch_size n size num_samples seq_len length hidden_size latent_dim")
    return False


def _is_values(node: ast.expr, context: Context) -> bool:
    array = isinstance(node, ast.Call) and context.name(node.func).startswith("numpy.")
    return array or context.kinds.of(node) is Kind.LIST
