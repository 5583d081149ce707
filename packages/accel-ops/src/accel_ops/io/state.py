# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads a dict of tensors in the layout of safetensors. A process that is killed leaves the former file.

The layout: 8 bytes with the length of a JSON header, the header, and the tensors without gaps. Our headers are padded
with spaces to a multiple of 4096 bytes, and tensors are in the order of falling element size: the first is aligned for
direct I/O. Format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from accel_ops.errors import InvalidFile, InvalidTensors
from accel_ops.io import transfers
from accel_ops.io.engines import uses_library
from accel_ops.io.files import Replacement, open_file
from accel_ops.io.session import File, Progress, complete

_LENGTH = struct.Struct("<Q")
_ALIGNED = 4096
#: As safetensors: a longer header is none.
_LONGEST = 100_000_000
#: torch's sizes and strides are 64-bit integers.
_MOST_BYTES = 2**63 - 1
#: More dimensions than any tensor has: a hostile header cannot make sizes whose product takes long.
_MOST_DIMENSIONS = 64
#: The unit of st_blocks.
_BLOCK = 512
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
    """The header with its length, the tensors by name, the metadata, and the size of the file."""

    header: bytes
    entries: dict[str, Entry]
    metadata: dict[str, str]
    end: int

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> Layout:
        """Return the layout of a new file; raises InvalidTensors for names and types that the layout lacks."""
        if not all(type(text) is str for pair in metadata.items() for text in pair):
            raise _unsaved("metadata that is not all text", "metadata of type dict[str, str]")
        described: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
        end = 0
        for name in tensors:
            if type(name) is not str or name == _METADATA:
                raise _unsaved(f"a tensor called {name!r}", f"a text other than {_METADATA}")
            if tensors[name].dtype not in _NAMES:
                raise _unsaved(f"{name!r} of {tensors[name].dtype}", f"one of {', '.join(map(str, _NAMES))}")
        for name in sorted(tensors, key=lambda name: -tensors[name].element_size()):
            tensor, begin = tensors[name], end
            end += tensor.nbytes
            described[name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [begin, end],
            }
        text = json.dumps(described, separators=(",", ":")).encode()
        text += b" " * (-(_LENGTH.size + len(text)) % _ALIGNED)
        if len(text) > _LONGEST:
            raise _unsaved(f"names and metadata of {len(text)} bytes", f"at most {_LONGEST}")
        return _parsed("a new file", _LENGTH.pack(len(text)) + text, _LENGTH.size + len(text) + end)

    @classmethod
    def read(cls, file: File, fd: int, name: str) -> Layout:
        """Return the layout of an open file; raises InvalidFile, OSError."""
        found = os.fstat(fd)
        size = found.st_size
        # A hole costs the writer of the file nothing, and its reader the memory.
        if 2 * _BLOCK * found.st_blocks < size and size > _memory():
            held = f"{size} bytes, of which {_BLOCK * found.st_blocks} are stored"
            raise _invalid(name, f"{held}; this machine has {_memory()} bytes of memory")
        if size < _LENGTH.size:
            raise _invalid(name, f"{size} bytes")
        first = _bytes(file, 0, _LENGTH.size)
        length = _LENGTH.unpack(first)[0]
        if not 2 <= length <= min(_LONGEST, size - _LENGTH.size):
            raise _invalid(name, f"{size} bytes, of which the first 8 are not the length of a header")
        return _parsed(name, first + _bytes(file, _LENGTH.size, length), size)


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _bytes(file: File, offset: int, size: int) -> bytes:
    into = bytearray(size)
    file.read(torch.frombuffer(into, dtype=torch.uint8), offset)
    return bytes(into)


def _parsed(name: str, header: bytes, size: int) -> Layout:
    try:
        described = json.loads(header[_LENGTH.size :].decode())
        metadata = described.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(type(text) is str for text in metadata.values()):
            raise ValueError("metadata that is not text")
        entries = {each: _entry(each, given, len(header)) for each, given in described.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _invalid(name, f"a header that cannot be read: {type(error).__name__}: {error}") from error
    end = len(header)
    for each, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].size)):
        if entry.begin != end:
            raise _invalid(
                name, f"tensor {each[:80]!r} at byte {entry.begin}, where byte {end} was to follow"
            )
        end += entry.size
    if end != size:
        raise _invalid(name, f"{size} bytes, where the header describes {end}")
    return Layout(header, entries, metadata, end)


def _entry(name: str, given: dict[str, Any], data: int) -> Entry:
    if given["dtype"] not in _DTYPES:
        raise ValueError(f"tensor {name[:80]!r} has the unknown type {str(given['dtype'])[:80]!r}")
    dtype, shape = _DTYPES[given["dtype"]], tuple(given["shape"])
    begin, end = given["data_offsets"]
    if len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"tensor {name[:80]!r} has {len(shape)} dimensions")
    size = span = dtype.itemsize
    for number in (*shape, begin, end):
        if type(number) is not int or not 0 <= number <= _MOST_BYTES:
            raise ValueError(f"tensor {name[:80]!r} has sizes or offsets that are not natural numbers")
    for number in shape:
        size, span = size * number, span * max(number, 1)
    if end - begin != size or span > _MOST_BYTES:
        raise ValueError(f"tensor {name[:80]!r} has {end - begin} bytes, shape {shape}, {dtype}")
    return Entry(dtype, shape, data + begin, size)


def _invalid(name: str, found: str) -> InvalidFile:
    return InvalidFile(
        f"{name} is not a file of tensors: {found}",
        do="check where the file comes from; a copy that was interrupted has to be made again",
    )


def _unsaved(found: str, expected: str) -> InvalidTensors:
    return InvalidTensors(
        f"this dict cannot be saved in the layout of safetensors: {found}; expected {expected}",
        do="convert it, or save it with torch.save",
    )


#: Any size for which direct I/O is worth it.
_LARGE = 1 << 20


def save(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a dict of tensors to a file that replaces `path` once all of it is on the device; returns its bytes.

    Readers, also after a crash of the machine, find the former file or the new one, never a mixture. Tensors that share
    memory are written one by one.
    progress: called with the bytes written so far and the total, about ten times a second.

    Raises InvalidTensors for what the layout cannot hold, OSError; `path` is then as before.
    """
    for tensor in tensors.values():
        transfers.check(tensor, write=True)
    layout = Layout.of(tensors, metadata or {})
    with Replacement(path) as new:
        with _opened(new.fd, write=True) as (file, _):
            file.write(torch.frombuffer(bytearray(layout.header), dtype=torch.uint8))
            starts = (
                (entry.size, partial(file.submit_write, tensors[name], entry.begin))
                for name, entry in layout.entries.items()
                if entry.size
            )
            complete(starts, layout.end - len(layout.header), progress)
        new.replace()
    return layout.end


def load(
    path: str | os.PathLike[str], *, device: torch.device | str = "cpu", progress: Progress | None = None
) -> dict[str, torch.Tensor]:
    """Read a file of `save`, or of safetensors, into new tensors on the device.

    Raises InvalidFile (a ValueError) for a file of another kind or an incomplete one, OSError.
    """
    with _opened(path, write=False) as (file, fd):
        layout = Layout.read(file, fd, os.fspath(path))
        tensors = {
            name: torch.empty(entry.shape, dtype=entry.dtype, device=device)
            for name, entry in layout.entries.items()
        }
        starts = (
            (entry.size, partial(file.submit_read, tensors[name], entry.begin))
            for name, entry in layout.entries.items()
            if entry.size
        )
        complete(starts, layout.end - len(layout.header), progress)
    return tensors


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the `metadata` of a file of `save`, or of safetensors. Raises InvalidFile, OSError."""
    with _opened(path, write=False) as (file, fd):
        return Layout.read(file, fd, os.fspath(path)).metadata


@contextmanager
def _opened(name: str | os.PathLike[str] | int, *, write: bool) -> Iterator[tuple[File, int]]:
    """Open a file once: replacing it then changes nothing of what is read or written."""
    opened = open_file(name, write=write, size=_LARGE, native=uses_library(), own=True)
    try:
        with File(opened.fd) as file:
            yield file, opened.fd
    finally:
        opened.close()
