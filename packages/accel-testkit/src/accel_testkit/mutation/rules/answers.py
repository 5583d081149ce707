# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants whose answer does not depend on anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_testkit.mutation.rules import shapes
from accel_testkit.mutation.source import Edit, Function, Mutant

_CONSTANTS = {
    "None": ("",),
    "bool": ("True", "False"),
    "int": ("0",),
    "float": ("0.0",),
    "str": ('""',),
    "list": ("[]",),
    "dict": ("{}",),
    "tuple": ("()",),
}


def constant(function: Function) -> Iterator[Mutant]:
    """The function returns a constant of its type at once."""
    if shapes.is_empty(function) or shapes.yields(function) or function.node.name == "__init__":
        return
    kind = shapes.answer(function).partition("[")[0]
    tensors = [
        argument.arg
        for argument, _ in shapes.parameters(function)
        if argument.annotation is not None and ast.unparse(argument.annotation) == "torch.Tensor"
    ]
    answers = _CONSTANTS.get(kind, (tensors[0],) if kind == "torch.Tensor" and tensors else ("None",))
    present = [function.source.segment(value) for value in shapes.returns(function)]
    for text in answers:
        if not (len(function.body) == 1 and present == [text]):
            yield function.begun_with("constant", f"return {text}".rstrip())


def stale(function: Function) -> Iterator[Mutant]:
    """The function computes its answer, but returns the first one it ever gave."""
    values = [value for value in shapes.returns(function) if not isinstance(value, ast.Constant)]
    if shapes.yields(function) or not values or not _varies(function):
        return
    edits = []
    for value in values:
        start, end = function.source.span(value)
        text = f'globals().setdefault("_first_{function.node.name}", {function.source.text[start:end]})'
        edits.append(Edit(start, end, text))
    yield function.edited("stale", values, edits)


def _varies(function: Function) -> bool:
    """Return whether the answer can vary: the function has parameters, or calls something that is no property's."""
    if any(argument.arg in shapes.loaded(function) for argument, _ in shapes.parameters(function)):
        return True
    is_property = any(ast.unparse(node) == "property" for node in function.node.decorator_list)
    return not is_property and any(isinstance(node, ast.Call) for node in function.walk())
