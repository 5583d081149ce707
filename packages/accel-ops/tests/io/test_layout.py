# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files that are truncated, of another kind or hostile are errors that say what is wrong, without large allocations."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops import io
from accel_ops.errors import InvalidFile

_HUGE = 2**62


def header(length: int, text: bytes, data: int = 0) -> bytes:
    """A file of a header and zeros."""
    return struct.pack("<Q", length) + text + bytes(data)


def entry(shape: Any = (4,), offsets: Any = (0, 4), dtype: Any = "U8", **others: Any) -> bytes:
    """A file with one tensor described so, and 4 bytes of data."""
    described = {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}, **others}
    text = json.dumps(described).encode()
    return header(len(text), text, 4)


_NESTED = b'{"a":' + b"[" * 200_000
_INVALID = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a pickle": b"\x80\x02}q\x00." * 100,
    "a huge length": header(2**64 - 1, b"{}"),
    "a length past the end": header(50, b"{}"),
    "a length of zero": header(0, b"{}"),
    "no JSON": header(4, b"{{{{"),
    "no text": header(4, b"\xff\xfe\xfd\xfc"),
    "nested without end": header(len(_NESTED), _NESTED),
    "a list": header(2, b"[]"),
    "a number with many digits": header(9_003, b'{"a":' + b"1" * 8_997 + b"}"),
    "metadata of numbers": entry(__metadata__={"step": 7}),
    "metadata of a list": entry(__metadata__=[]),
    "no description": entry(b=None),
    "no shape": header(26, b'{"a":{"dtype":"U8"      }}'),
    "an unknown type": entry(dtype="F4_X"),
    "a type that is a list": entry(dtype=[]),
    "a negative size": entry((-4,)),
    "a size of another type": entry((4.0,)),
    "a size true": entry((True, 4)),
    "a shape of text": entry("four"),
    "too many bytes": entry((_HUGE,), (0, _HUGE)),
    "a product beyond integers": entry((_HUGE, _HUGE), (0, 4)),
    "an empty tensor with a hidden product": entry((0, _HUGE, _HUGE), (0, 0)),
    "a hundred dimensions": entry((1,) * 99 + (4,)),
    "more bytes than the shape": entry((3,)),
    "reversed offsets": entry((4,), (4, 0)),
    "one offset": entry((4,), (0,)),
    "an offset beyond the file": entry((4,), (1000, 1004)),
    "a gap before": entry((3,), (1, 4)),
    "bytes left over": entry((3,), (0, 3)),
    "overlapping tensors": entry(b={"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}),
}


@pytest.mark.parametrize("content", _INVALID.values(), ids=_INVALID.keys())
def test_an_invalid_file_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    for load in (io.load, io.load_metadata):
        with pytest.raises(InvalidFile, match="ACC-511") as caught:
            load(path)
        assert str(path) in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert len(str(caught.value)) < 1000


def test_the_valid_file_beside_the_invalid_ones_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(entry(__metadata__={"step": "7"}))
    assert torch.equal(io.load(tmp_path / "file")["a"], torch.zeros(4, dtype=torch.uint8))


def test_a_file_truncated_anywhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    size = io.save({"a": torch.ones(3000), "b": torch.ones(5, dtype=torch.int8)}, path)
    for length in (size - 1, size - 5, size // 2, 4096, 4095, 100, 8, 3, 0):
        os.truncate(path, length)
        with pytest.raises(InvalidFile):
            io.load(path)


def test_other_kinds_of_file_are_oserrors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "folder", "missing", "missing/file"):
        with pytest.raises(OSError, match=name.split("/")[0]):
            io.load(tmp_path / name)
    for name in ("fifo", "folder", "missing/file"):
        with pytest.raises(OSError, match=name.split("/")[0]):
            io.save({"a": torch.ones(3)}, tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder"]


def test_a_file_of_a_terabyte_of_which_next_to_nothing_is_stored_is_an_error(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 1 << 40
    path.write_bytes(entry((size,), (0, size)))
    os.truncate(path, os.path.getsize(path) - 4 + size)
    for load in (io.load, io.load_metadata):
        with pytest.raises(InvalidFile, match="are stored"):
            load(path)
