# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses as JSON data and back, checked field by field.

A field with the metadata `AS_LIST` holds ascending numbers of CPUs or NUMA nodes, and is written as the kernel writes
them, `0-3,8`: a machine has hundreds.
"""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from accel_core.errors import AccelError
from accel_core.vendor import format_cpu_list, parse_cpu_list

AS_LIST: Mapping[str, bool] = {"as_list": True}

T = TypeVar("T")


class InvalidData(ValueError):
    """The data has another shape than the class; the text is `<path>: <found>, not <expected>`."""


def to_data(value: Any) -> Any:
    """Return dicts, lists and plain values for a dataclass."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: format_cpu_list(getattr(value, field.name))
            if field.metadata.get("as_list")
            else to_data(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def from_data(cls: type[T], data: object, path: str) -> T:
    """Return the dataclass for the data that `to_data` returned; raises `InvalidData`, with the path of the value."""
    if not isinstance(data, dict):
        raise InvalidData(f"{path}: {_shown(data)}, not an object")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if wrong := sorted(map(str, set(data) ^ set(fields))):
        raise InvalidData(
            f"{path}: the keys {', '.join(wrong)} are unknown or missing, not {', '.join(fields)}"
        )
    return cls(
        **{
            name: _numbers(data[name], f"{path}.{name}")
            if field.metadata.get("as_list")
            else _value(hints[name], data[name], f"{path}.{name}")
            for name, field in fields.items()
        }
    )


def _value(hint: Any, data: object, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_data(hint, data, path)  # type: ignore[arg-type]
    if origin is types.UnionType:
        return None if data is None else _value(arguments[0], data, path)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(data))
    if origin is Mapping and isinstance(data, dict):
        return {_value(str, key, path): _value(str, item, f"{path}.{key}") for key, item in data.items()}
    if origin is Literal and data in arguments:
        return data
    # bool is an int in Python, not in JSON.
    if isinstance(hint, type) and type(data) is hint and _is_portable(data):
        return data
    raise InvalidData(f"{path}: {_shown(data)}, not {_described(hint)}")


def _is_portable(data: object) -> bool:
    """Return whether a string can be an argument, or the value of a variable, of a process."""
    try:
        return b"\0" not in os.fsencode(str(data))
    except UnicodeEncodeError:
        return False


def _numbers(data: object, path: str) -> tuple[int, ...]:
    if not isinstance(data, str):
        raise InvalidData(f"{path}: {_shown(data)}, not a list such as '0-3,8'")
    try:
        return tuple(sorted(parse_cpu_list(data, path)))
    except AccelError as error:
        raise InvalidData(f"{path}: {_shown(data)}, not a list such as '0-3,8'") from error


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return {str: "a string without NUL", int: "a whole number", bool: "true or false"}.get(hint, str(hint))


def _shown(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:60]}…"
