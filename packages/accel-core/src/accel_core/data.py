# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Dataclasses as JSON and back. What is read is checked field by field: a file may have been edited, or be hostile."""

from __future__ import annotations

import dataclasses
import math
import os
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from accel_core.errors import AccelError
from accel_core.vendor import format_cpu_list, parse_cpu_list

#: Ascending numbers of CPUs or NUMA nodes. In JSON as the kernel writes them, `0-3,8`: a machine has hundreds.
NumberList = Annotated[tuple[int, ...], "NumberList"]
#: A number of things or of bytes.
Count = Annotated[int, "Count"]
_EXPECTED = {
    NumberList: "a list such as '0-3,8'", Count: "a whole number from 0 to 2**63 - 1", str: "a string without NUL",
    int: "a whole number", float: "a finite number", bool: "true or false",
}  # fmt: skip
T = TypeVar("T")


class InvalidData(ValueError):
    """The data has another shape than the class; the text is `<path>: <found>, not <expected>`."""


def to_data(value: Any, hint: Any = None) -> Any:
    """Return dicts, lists and plain values for a dataclass."""
    if hint == NumberList:
        return format_cpu_list(value)
    if dataclasses.is_dataclass(value):
        hints = get_type_hints(type(value), include_extras=True)
        return {name: to_data(getattr(value, name), own) for name, own in hints.items()}
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def from_data(cls: type[T], data: object, path: str) -> T:
    """Return the dataclass for the data that `to_data` returned; raises `InvalidData`, with the path of the value."""
    if not isinstance(data, dict):
        raise _wrong(path, data, "an object")
    hints = get_type_hints(cls, include_extras=True)
    if wrong := sorted(map(_name, set(data) ^ set(hints))):
        raise InvalidData(
            f"{path}: the keys {', '.join(wrong)[:200]} are unknown or missing, not {', '.join(hints)}"
        )
    return cls(**{name: _value(hint, data[name], f"{path}.{name}") for name, hint in hints.items()})


def _value(hint: Any, data: object, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_data(hint, data, path)  # type: ignore[arg-type]
    if hint == NumberList and isinstance(data, str):
        try:
            return tuple(sorted(parse_cpu_list(data, path)))
        except AccelError as error:
            raise _wrong(path, data, _EXPECTED[hint]) from error
    if origin is types.UnionType:
        return None if data is None else _value(arguments[0], data, path)
    if origin is tuple and isinstance(data, list):
        kinds = arguments[:1] * len(data) if arguments[1:] == (...,) else arguments
        if len(kinds) != len(data):
            raise _wrong(path, data, f"{len(kinds)} values")
        return tuple(
            _value(kind, item, f"{path}[{index}]")
            for index, (kind, item) in enumerate(zip(kinds, data, strict=True))
        )
    if origin is Mapping and isinstance(data, dict):
        return {
            _value(str, key, path): _value(arguments[1], item, f"{path}.{_name(key)}")
            for key, item in data.items()
        }
    if (origin is Literal and data in arguments) or _has_type(hint, data):
        return float(data) if hint is float else data  # type: ignore[arg-type]
    one_of = f"one of {', '.join(map(repr, arguments))}" if origin is Literal else str(hint)
    raise _wrong(path, data, _EXPECTED.get(hint, one_of))


def _has_type(hint: Any, data: object) -> bool:
    """Return whether a plain value has the type. bool is an int in Python, not in JSON."""
    if hint == Count:
        return type(data) is int and 0 <= data < 2**63
    if hint is float:
        return type(data) in (int, float) and abs(data) < 2**63 and math.isfinite(data)  # type: ignore[arg-type]
    return isinstance(hint, type) and type(data) is hint and _is_portable(data)


def _is_portable(data: object) -> bool:
    """Return whether a string can be an argument, or the value of a variable, of a process."""
    try:
        return b"\0" not in os.fsencode(str(data))
    except UnicodeEncodeError:
        return False


def _name(key: str) -> str:
    """Return a key for a message: one that is not the name of a field may have any characters."""
    return key if key.isidentifier() else f"{key!r:.60}"


def _wrong(path: str, data: object, expected: str) -> InvalidData:
    return InvalidData(f"{path}: {data!r:.60}, not {expected}")
