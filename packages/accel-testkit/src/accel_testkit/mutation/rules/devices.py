# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants that use another device than the one asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_testkit.mutation.rules import shapes
from accel_testkit.mutation.source import Function, Mutant

_INDEX = ("device_index", "index")


def index(function: Function) -> Iterator[Mutant]:
    """An index argument is replaced as the function begins."""
    for argument, default in shapes.parameters(function):
        name = argument.arg
        if name not in _INDEX or name not in shapes.loaded(function):
            continue
        number = f"isinstance({name}, int)"
        yield function.begun_with("index", f"{name} = {name} + 1 if {number} else {name}")
        yield function.begun_with("index", f"{name} = 0 if {number} else {name}")
        if isinstance(default, ast.Constant) and default.value is None:
            yield function.begun_with("index", f"{name} = 0 if {name} is None else {name}")
            yield function.begun_with("index", f"{name} = None")


def device(function: Function) -> Iterator[Mutant]:
    """A device, or the name of its type, is `meta`: one that holds no data."""
    for node in function.walk():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.device":
            yield function.changed("device", node, 'torch.device("meta")')
        elif isinstance(node, ast.keyword) and node.arg == "device":
            yield function.changed("device", node.value, "'meta'")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "self._name" and shapes.is_loaded(node):
            yield function.changed("device", node, "'meta'")
