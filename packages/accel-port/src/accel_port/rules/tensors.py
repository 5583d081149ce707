# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Typed tensors of torch.cuda, as constructors, as types, and as the aliases that GAN programs keep."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_port.kinds import Kind
from accel_port.rules.base import Context, Edit, Finding, Level, Rule
from accel_port.syntax import words

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


class TypedTensor(Rule[ast.AST]):
    """`torch.cuda.FloatTensor` and its kin."""

    name = "typed-tensor"
    summary = "A typed tensor of CUDA becomes `torch.tensor`, `torch.empty` or `.to`, with dtype and device."
    why = (
        "One integer is a size for torch.cuda's types and a value for several accelerators', so what the argument is"
        " decides the function. All uses of an alias are ported together, or none is."
    )
    levels = (Level.REWRITTEN, Level.REVIEW, Level.REPORTED)
    nodes = (ast.Assign, ast.Call, ast.Attribute, ast.Constant)

    def find(self, node: ast.AST, context: Context) -> Iterator[Finding]:
        if isinstance(node, ast.Assign):
            yield from self._alias(node, context)
        elif isinstance(node, ast.Call):
            yield from self._call(node, context)
        elif isinstance(node, ast.Constant):
            yield from self._text(node, context)
        elif _typed(node, context) and not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            context.settle(node)
            advice = "use a dtype and a device instead of a type"
            yield context.report(self, node, "a typed tensor, passed on as a value", advice)

    def _call(self, node: ast.Call, context: Context) -> Iterator[Finding]:
        dtype = _typed(node.func, context)
        device = context.target.device
        if dtype is not None:
            context.settle(node.func)
            settings = f"dtype={context.target.torch}.{dtype}, device={device}"
            edits = self._made(node, settings, context)
            if edits is None:
                advice = "sizes: torch.empty(sizes, …); values: torch.tensor(values, …)"
                yield context.report(self, node, "an argument that may be sizes or values", advice)
            else:
                yield context.finding(self, node, self.summary, edits)
            return
        match node:
            case ast.Call(func=ast.Attribute(attr="type") as func, args=[wanted], keywords=[]):
                dtype = _typed(wanted, context) or _named(wanted)
                if dtype is not None:
                    context.done.update(ast.walk(wanted))
                    edits = self._moved(node, func, f"{device}, {context.target.torch}.{dtype}", context)
                    yield context.finding(self, node, self.summary, edits)

    def _text(self, node: ast.Constant, context: Context) -> Iterator[Finding]:
        if _named(node):
            context.done.add(node)
            yield context.report(self, node, "the name of a typed tensor of CUDA", "use a dtype and a device")

    def _alias(self, node: ast.Assign, context: Context) -> Iterator[Finding]:
        """Port `Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor` with all its uses."""
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return
        name, value = node.targets[0], node.value
        choice = value if isinstance(value, ast.IfExp) else None
        typed = choice.body if choice else value
        dtype = _typed(typed, context)
        if dtype is None:
            return
        if choice is not None and context.name(choice.orelse) not in _HOST_TYPES[dtype]:
            return
        context.done.update(ast.walk(typed))
        group = f"type:{name.id}:{node.lineno}"
        found = list(self._uses(name, context, group))
        where = context.target.device
        if choice is not None:
            context.done.update(ast.walk(choice.orelse))
            start, end = context.module.span(value)
            test, test_end = context.module.span(choice.test)
            if context.calls(choice.test, "torch.cuda.is_available") and not context.target.is_torch:
                context.done.update(ast.walk(choice.test))
                edits = [Edit(start, end, f"dict(dtype={context.target.torch}.{dtype}, device={where})")]
            else:
                head = f"dict(dtype={context.target.torch}.{dtype}, device={where} if "
                edits = [Edit(start, test, head), Edit(test_end, end, ' else "cpu")')]
        else:
            edits = [context.edit(value, f"dict(dtype={context.target.torch}.{dtype}, device={where})")]
        alone = len(context.module.bindings(name)) == 1
        level = Level.REVIEW if alone else Level.REPORTED
        message = f"{name.id} is now the settings of a tensor: dtype and device"
        advice = "rename it if you like"
        yield context.finding(self, node, message, edits if alone else (), level, advice, group)
        yield from found

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
            context.done.add(call)
            edits = self._made(call, f"**{use.id}", context)
            if edits is not None:
                return context.finding(self, call, self.summary, edits, group=group)
        receiver, where = context.receives(use)
        func = receiver.func if receiver is not None and where == 0 and len(receiver.args) == 1 else None
        if receiver is not None and isinstance(func, ast.Attribute) and func.attr == "type":
            context.done.add(receiver)
            edits = self._moved(receiver, func, f"**{use.id}", context)
            return context.finding(self, receiver, self.summary, edits, group=group)
        return context.report(self, use, "an alias of a typed tensor, used in another way", group=group)

    @staticmethod
    def _moved(node: ast.Call, func: ast.Attribute, arguments: str, context: Context) -> list[Edit]:
        end = context.module.span(func)[1]
        first, last = context.module.span(node.args[0])
        return [Edit(end - len("type"), end, "to"), Edit(first, last, arguments)]

    @staticmethod
    def _made(node: ast.Call, settings: str, context: Context) -> list[Edit] | None:
        """Return the edits that make a constructor's call a call of torch.tensor or torch.empty; None if unsure."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        torch = context.target.torch
        start, call_end = context.module.span(node)
        if not node.args:
            return [Edit(start, call_end, f"{torch}.empty(0, {settings})")]
        first, end = context.module.span(node.args[0])[0], context.module.span(node.args[-1])[1]
        if len(node.args) == 1:
            argument = node.args[0]
            if isinstance(argument, (ast.List, ast.ListComp)) or _is_array(argument, context):
                return [Edit(start, first, f"{torch}.tensor("), Edit(end, call_end, f", {settings})")]
            if isinstance(argument, ast.Tuple):
                return [Edit(start, first, f"{torch}.tensor("), Edit(end, call_end, f", {settings})")]
            if not _is_size(argument, context):
                return None
            return [Edit(start, first, f"{torch}.empty("), Edit(end, call_end, f", {settings})")]
        if all(_is_size(argument, context) for argument in node.args):
            return [Edit(start, first, f"{torch}.empty(("), Edit(end, call_end, f"), {settings})")]
        return None


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
        case ast.Attribute(attr="shape"):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim")):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_size(left, context) and _is_size(right, context)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in words("batch_size n size num_samples seq_len length hidden_size latent_dim")
    return False


def _is_array(node: ast.expr, context: Context) -> bool:
    return isinstance(node, ast.Call) and context.name(node.func).startswith("numpy.")
