# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A surface's signature as a line of a stub: the parameters as they are, and types where they are known."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

UNKNOWN = "(*args: Any, **kwargs: Any) -> Any"
#: How surfaces write types that torch or Python has; every other name is Any.
_TYPES = {
    **{name: name for name in ("Any", "None", "bool", "bytes", "float", "int", "str")},
    "Device": "int | str | torch.device | None",
    "_device_t": "int | str | torch.device | None",
    "Generator": "torch.Generator",
    "Tensor": "torch.Tensor",
    "torch.Generator": "torch.Generator",
    "torch.Tensor": "torch.Tensor",
    "torch._C.Generator": "torch.Generator",
    "torch.device": "torch.device",
    "torch.dtype": "torch.dtype",
}
_CONTAINERS = {"list": 1, "dict": 2}
#: Of an operator's schema; C++'s int is Python's.
_SCHEMA_TYPES = {
    "Tensor": "torch.Tensor",
    "Scalar": "float",
    "float": "float",
    "int": "int",
    "SymInt": "int",
    "bool": "bool",
    "str": "str",
    "ScalarType": "torch.dtype",
    "Device": "int | str | torch.device",
    "Generator": "torch.Generator",
}
_SCHEMA = re.compile(r"[\w:]+(?:\.\w+)?\((?P<arguments>.*)\) -> .*")
_ARGUMENT = re.compile(r"(?P<type>.+?) (?P<name>\w+)(?P<default>=.*)?")


def function(signature: str, classes: Collection[str] = (), receiver: str = "") -> list[str]:
    """What follows a function's name in a stub, once for each overload; `UNKNOWN` where the surface has only the name.

    classes:  names of its module that are classes, so that they can stand as types.
    receiver: `self` or `cls` for a method, in place of the one that the signature may have.
    """
    if "::" in signature:
        return [_operator(schema) for schema in signature.split("; ")]
    try:
        node = ast.parse(f"def f{signature}: ...").body[0]
    except SyntaxError:
        return [UNKNOWN]
    # `=...` is how a surface writes the parameters that somebody was seen to use: there may be others.
    if not isinstance(node, ast.FunctionDef) or "=..." in signature:
        return [UNKNOWN]
    parameters = list(_parameters(node.args, classes))
    if receiver:
        given = bool(parameters) and parameters[0] in ("self: Any", "cls: Any")
        parameters = [receiver, *parameters[given:]]
    return [f"({', '.join(parameters)}) -> {annotation(node.returns, classes)}"]


def first_parameter(signature: str) -> str:
    """Name of the first parameter; empty where there is none."""
    match = re.match(r"\(\s*(\*{0,2}\w+)", signature)
    return match[1] if match else ""


def annotation(node: ast.expr | None, classes: Collection[str] = ()) -> str:
    """A type as a stub has it; Any where it is unknown."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if node is None:
        return "Any"
    if not isinstance(node, ast.Subscript):
        text = ast.unparse(node).removeprefix("typing.")
        bare = {"Tuple": "tuple[Any, ...]", "List": "list[Any]", "Dict": "dict[Any, Any]"}
        return text if text in classes else bare.get(text) or _TYPES.get(text, "Any")
    container = ast.unparse(node.value).removeprefix("typing.").lower()
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    types = [annotation(item, classes) for item in inside]
    if container in ("optional", "union"):
        return _union([*types, "None"] if container == "optional" else types)
    if container == "tuple":
        ends = isinstance(inside[-1], ast.Constant) and inside[-1].value is ...
        return f"tuple[{', '.join([*types[:-1], '...'] if ends else types)}]"
    if _CONTAINERS.get(container) == len(types):
        return f"{container}[{', '.join(types)}]"
    return "Any"


def _union(types: list[str]) -> str:
    parts = list(dict.fromkeys(part for name in types for part in name.split(" | ")))
    return "Any" if "Any" in parts else " | ".join(parts)


def _parameters(arguments: ast.arguments, classes: Collection[str]) -> Iterator[str]:
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    for position, (argument, default) in enumerate(zip(plain, defaults, strict=True), 1):
        yield _parameter(argument, default, classes)
        if arguments.posonlyargs and position == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{arguments.vararg.arg}: Any"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default, classes)
    if arguments.kwarg:
        yield f"**{arguments.kwarg.arg}: Any"


def _parameter(argument: ast.arg, default: ast.expr | None, classes: Collection[str]) -> str:
    kind = annotation(argument.annotation, classes)
    if default is None:
        return f"{argument.arg}: {kind}"
    # `device: int = None` in a vendor's code means that None may be given.
    may_be_none = isinstance(default, ast.Constant) and default.value is None
    return f"{argument.arg}: {_union([kind, 'None']) if may_be_none else kind} = ..."


def _operator(schema: str) -> str:
    """`npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor` in Python's words; what it returns is left open."""
    match = _SCHEMA.fullmatch(schema.strip())
    if match is None:
        return UNKNOWN
    parameters = []
    for text in re.split(r",\s*(?![^()\[\]]*[)\]])", match["arguments"]) if match["arguments"] else ():
        argument = _ARGUMENT.fullmatch(text.strip())
        if text.strip() == "*":
            parameters.append("*")
        elif argument is None:
            return UNKNOWN
        else:
            kind = _schema_type(re.sub(r"\([a-z!| >*-]+\)", "", argument["type"]))
            default = " = ..." if argument["default"] else ""
            # torch's packet calls its own parameter so; an operator's `self` is given by position.
            name = "input" if argument["name"] == "self" else argument["name"]
            parameters.append(f"{name}: {kind}{default}")
    return f"({', '.join(parameters)}) -> Any"


def _schema_type(text: str) -> str:
    if text.endswith("?"):
        return _union([_schema_type(text[:-1]), "None"])
    if match := re.fullmatch(r"(.+)\[\d*\]", text):
        inside = _schema_type(match[1])
        return f"list[{inside}] | tuple[{inside}, ...]" if inside != "Any" else "Any"
    return _SCHEMA_TYPES.get(text, "Any")
