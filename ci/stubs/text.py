# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The text of a stub: one module of a surface."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ci.stubs import signatures
from ci.stubs.surfaces import REGISTERED, Name

HEADER = """\
# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
"""
_UNKNOWN_METHOD = "(self, *args: Any, **kwargs: Any) -> Any"
_IMPORTS = "from typing import Any, overload\n\nimport torch\n"


def module(full: str, names: Name, tree: Name) -> str:
    """The stub of a module; `tree` has all modules, for those that are bound in this one."""
    lines = [*_modules(full, names, tree)]
    classes = [name for name, child in names.below.items() if child.kind == "class" and child.below]
    for name, child in sorted(names.below.items()):
        # A name that is there only sometimes has to be asked for, with hasattr or getattr.
        if not child.condition and not child.is_module and not _bound(child, tree):
            lines += _name(name, child, classes)
    return "\n".join([HEADER + _IMPORTS, *lines, ""])


def _bound(name: Name, tree: Name) -> bool:
    """Whether the attribute is a module with a stub of its own."""
    found = tree.at(name.module) if name.module else None
    return found is not None and found.is_module


def _modules(full: str, names: Name, tree: Name) -> Iterator[str]:
    """Imports that bind modules: a device module in its package always, others where the surface says so."""
    for name, child in sorted(names.below.items()):
        if _bound(child, tree):
            package, _, last = child.module.rpartition(".")
            yield f"from {package} import {last} as {name}"
        elif child.is_module and (child.kind or f"{full}.{name}" in REGISTERED.values()):
            yield f"from {full} import {name} as {name}"


def _name(name: str, child: Name, classes: Collection[str]) -> Iterator[str]:
    if child.below or (child.kind == "class" and child.signature):
        yield from _class(name, child, classes)
    elif child.kind == "function" or child.signature.startswith("("):
        yield from _function(name, signatures.function(child.signature, classes))
    else:
        yield f"{name}: Any" + ("  # unconfirmed" if child.unconfirmed else "")


def _function(name: str, forms: Collection[str], indent: str = "", decorator: str = "") -> Iterator[str]:
    known = [form for form in dict.fromkeys(forms) if form != signatures.UNKNOWN]
    for form in known or [signatures.UNKNOWN]:
        if len(known) > 1:
            yield f"{indent}@overload"
        if decorator:
            yield f"{indent}@{decorator}"
        yield f"{indent}def {name}{form}: ..."


def _class(name: str, child: Name, classes: Collection[str]) -> Iterator[str]:
    yield f"class {name}:"
    yield f"    def __init__{_constructor(child.signature, classes)}: ..."
    for member, below in sorted(child.below.items()):
        if below.condition or member == "__init__":
            continue
        if below.kind == "property":
            yield from _function(member, ["(self) -> Any"], "    ", "property")
        elif below.kind == "method":
            yield from _method(member, below.signature)
        else:
            yield f"    {member}: {_type(below.signature, classes)}"


def _constructor(signature: str, classes: Collection[str]) -> str:
    (form,) = signatures.function(signature, classes, receiver="self") if signature else [_UNKNOWN_METHOD]
    return f"{form.rpartition(' -> ')[0]} -> None"


def _method(name: str, signature: str) -> Iterator[str]:
    if not signature:
        yield from _function(name, [_UNKNOWN_METHOD], "    ")
    else:
        first = signatures.first_parameter(signature)
        receiver = first if first in ("self", "cls") else ""
        decorator = {"self": "", "cls": "classmethod"}.get(receiver, "staticmethod")
        yield from _function(name, signatures.function(signature, receiver=receiver), "    ", decorator)


def _type(signature: str, classes: Collection[str]) -> str:
    try:
        return signatures.annotation(ast.parse(signature, mode="eval").body if signature else None, classes)
    except SyntaxError:
        return "Any"
