# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The layout of safetensors: 8 bytes with the length of a JSON header, the header, and the tensors without gaps.

Format: https://github.com/huggingface/safetensors#format. Our headers are padded with spaces to a multiple of 4096
bytes, and tensors are in the order of falling element size: the first is aligned for direct I/O.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from accel_host.errors import InvalidFile

_LENGTH = struct.Struct("<Q")
_ALIGNED = 4096
#: As safetensors: a longer header is none.
_LONGEST = 100_000_000
_METADATA = "__metadata__"
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """A tensor in a file: its first byte, and its bytes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    size: int


@dataclass(frozen=True)
class Layout:
    """The header with its length, the tensors by name, and the size of the file."""

    header: bytes
    entries: dict[str, Entry]
    end: int

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> Layout:
        """Return the layout of a new file; raises InvalidFile for a type that safetensors lacks."""
        described: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
        relative = 0
        names = sorted(tensors, key=lambda name: -tensors[name].element_size())
        for name in names:
            tensor = tensors[name]
            if tensor.dtype not in _NAMES or name == _METADATA:
                raise _invalid("a dict cannot be saved", f"{name!r}: {tensor.dtype}", ", ".join(_DTYPES))
            offsets = [relative, relative + tensor.nbytes]
            described[name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": offsets,
            }
            relative = offsets[1]
        text = json.dumps(described, separators=(",", ":")).encode()
        text += b" " * (-(_LENGTH.size + len(text)) % _ALIGNED)
        return _parsed("a new file", _LENGTH.pack(len(text)) + text, _LENGTH.size + len(text) + relative)


def read_layout(path: str | os.PathLike[str]) -> Layout:
    """Return the layout of a file; raises InvalidFile, OSError."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(_LENGTH.size)
        length = _LENGTH.unpack(first)[0] if len(first) == _LENGTH.size else -1
        if not 2 <= length <= min(_LONGEST, size - _LENGTH.size):
            raise _invalid(str(path), f"{size} bytes that do not begin with the length of a header")
        return _parsed(str(path), first + file.read(length), size)


def _parsed(name: str, header: bytes, size: int) -> Layout:
    try:
        described = json.loads(header[_LENGTH.size :])
        described.pop(_METADATA, None)
        entries = {each: _entry(given, len(header)) for each, given in described.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _invalid(name, f"a header that cannot be read: {type(error).__name__}: {error}") from error
    end = len(header)
    for each, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].size)):
        if entry.begin != end:
            raise _invalid(name, f"tensor {each!r} begins at byte {entry.begin}, the one before ends at {end}")
        end += entry.size
    if end != size:
        raise _invalid(name, f"{size} bytes, of which the header describes {end}")
    return Layout(header, entries, end)


def _entry(given: dict[str, Any], data: int) -> Entry:
    dtype, shape = _DTYPES[given["dtype"]], tuple(given["shape"])
    begin, end = given["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError("sizes and offsets must be natural numbers")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - begin} bytes for {shape} elements of {dtype}")
    return Entry(dtype, shape, data + begin, end - begin)


def _invalid(what: str, found: str, expected: str = "the layout of safetensors, complete") -> InvalidFile:
    return InvalidFile(
        what=f"{what}: not a file of tensors",
        found=found,
        expected=expected,
        do="check where the file comes from; a copy that was interrupted has to be made again",
    )
