# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Facts about one expression, without the module around it."""

from __future__ import annotations

import ast
import io
import re
import tokenize


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


#: Words for other devices: a program that has them chooses between kinds of devices itself.
OTHER_DEVICES = words("mps xpu npu hpu mlu sdaa supa musa xla tpu neuron hip meta")


_DEVICE = re.compile(r"cuda(:\d+)?")


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return whether an expression is this constant."""
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


def is_cuda_text(node: ast.AST | None) -> bool:
    """Return whether an expression is the text of a CUDA device, `"cuda"` or `"cuda:1"`."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and bool(_DEVICE.fullmatch(text))


def texts_in(code: str) -> int:
    """Return how many texts side by side an expression of texts is made of: `"a" f"{b}"` of two."""
    depth = found = 0
    for token in tokenize.generate_tokens(io.StringIO(f"({code})").readline):
        kind = tokenize.tok_name[token.type]
        found += not depth and kind in ("STRING", "FSTRING_START")
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
    return found


def device_index(node: ast.AST) -> str:
    """Return the index in the text of a CUDA device, empty if it has none."""
    return str(getattr(node, "value", "")).partition(":")[2]


def named(node: ast.expr, pattern: re.Pattern[str]) -> bool:
    """Return whether a name, or an attribute's, fits a pattern."""
    node = node.value if isinstance(node, ast.Subscript) else node  # one of gpu_ids
    return bool(pattern.search(str(getattr(node, "id", getattr(node, "attr", "")))))


def keyword(call: ast.Call, *names: str) -> ast.keyword | None:
    """Return the argument of a call that has one of these names."""
    return next((k for k in call.keywords if k.arg in names), None)


#: Expressions that take an attribute as they are.
PRIMARY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return the first argument of a call, by position or by its name."""
    given = keyword(call, name)
    return call.args[0] if call.args else given.value if given else None


def unseen(call: ast.Call) -> bool:
    """Return whether a call has arguments in a list or table that is not seen."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def parameters(args: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters that an argument may be given for, in their order, with their defaults."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    return [*zip(positional, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
