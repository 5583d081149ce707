# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checks that a library has the C interface that `accel_ops.binding` declares.

A library with another layout would compute wrong numbers or crash, so it is never called. Each library describes its
own interface as its compiler laid it out (csrc/abi.cpp); this module makes the same text from the ctypes declarations.
Two arguments of the same type that are swapped do not show in it: such a change must raise `ABI_VERSION`.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any

from accel_core.errors import LibraryMismatch
from accel_ops import binding

_SCALARS = {c_double: "double", c_float: "float", c_int64: "int64", c_int32: "int32", None: "void"}
_STRUCTURES = {structure: name for name, structure in binding.STRUCTURES.items()}
#: Largest number of differences in a message.
_SHOWN = 3


def check(library: ctypes.CDLL) -> None:
    """Compare the library's description of its interface with our declarations; raises `LibraryMismatch`."""
    _check_version(library)
    missing = [name for name in binding.PROTOTYPES if not hasattr(library, name)]
    if missing:
        raise _mismatch(library, f"without the functions {', '.join(missing)}", "all of its functions")
    text = _description(library)
    if text == expected():
        return
    theirs, ours = _items(text), _items(expected())
    differing = [item for item in {**ours, **theirs} if ours.get(item) != theirs.get(item)]
    raise _mismatch(library, _listed(theirs, differing), _listed(ours, differing))


@functools.cache
def expected() -> str:
    """Return what `accel_abi_description` of a matching library gives."""
    lines = [f"constant {name}: {value}" for name, value in binding.CONSTANTS.items()]
    for name, structure in binding.STRUCTURES.items():
        lines.append(f"struct {name}: {ctypes.sizeof(structure)} bytes")
        for field, cls, *_ in structure._fields_:
            offset = getattr(structure, field).offset
            lines.append(f"field {name}.{field}: {_type_name(cls)} at {offset}")
    for name, (result, arguments) in binding.PROTOTYPES.items():
        types = ", ".join(map(_type_name, arguments))
        lines.append(f"function {name}: {_type_name(result)}({types})")
    return "\n".join(lines) + "\n"


def _type_name(cls: Any) -> str:
    """Return the name that csrc/abi.cpp gives the type."""
    if cls in _SCALARS:
        return _SCALARS[cls]
    if cls in _STRUCTURES:
        return _STRUCTURES[cls]
    if cls is binding.PackedAdamArguments:
        return "accel_adam_arguments*"
    pointee = getattr(cls, "_type_", None)
    if pointee in _STRUCTURES:
        return f"{_STRUCTURES[pointee]}*"
    assert cls in (c_void_p, c_char_p) or pointee is c_void_p or pointee in _SCALARS, cls
    return "pointer"


def _check_version(library: ctypes.CDLL) -> None:
    try:
        version = library.accel_abi_version()
    except AttributeError:
        raise _mismatch(library, "without the function accel_abi_version", "a library of accel-ops") from None
    if version != binding.ABI_VERSION:
        raise _mismatch(library, f"ABI version {version}", f"ABI version {binding.ABI_VERSION}")


def _description(library: ctypes.CDLL) -> str:
    # A longer text differs in any case and may be cut off.
    size = 2 * len(expected())
    buffer = ctypes.create_string_buffer(size)
    library.accel_abi_description(buffer, c_int32(size))
    return buffer.value.decode("ascii", "replace")


def _items(text: str) -> dict[str, str]:
    """Return the value of each line by its item."""
    parted = (line.rpartition(": ") for line in text.splitlines())
    return {item: value for item, _, value in parted}


def _listed(items: dict[str, str], names: list[str]) -> str:
    shown = [f"{name}: {items.get(name, 'none')}" for name in names[:_SHOWN]]
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return "; ".join(shown + more)


def _mismatch(library: ctypes.CDLL, found: str, expected: str) -> LibraryMismatch:
    return LibraryMismatch(
        what=f"{library._name} cannot be used: its C interface is not that of this accel-ops",
        found=found,
        expected=expected,
        do="reinstall accel-ops, so that library and Python code are of one release; after a change of csrc, "
        "change accel_ops.binding too",
    )
