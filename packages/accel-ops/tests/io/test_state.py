# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A dict of tensors is saved and loaded as it is, in the layout of safetensors; damage and failures are errors."""

import errno
import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops import io
from accel_ops.errors import InvalidFile, InvalidTensors
from accel_ops.io import session as sessions

from .conftest import Run, storm

on_each_engine = pytest.mark.usefixtures("each_engine")
_DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip


class Wrapper(torch.Tensor):
    """A tensor whose memory is elsewhere, such as a DTensor."""

    @classmethod
    def __torch_dispatch__(cls, *called: object) -> object:
        raise NotImplementedError


def state() -> dict[str, torch.Tensor]:
    """Tensors of every type, and of every layout and size that is special."""
    base = torch.arange(60.0).view(6, 10)
    special = {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 7),
        "strided": base[::2, 3:],
        "transposed": base.t(),
        "expanded": torch.tensor([1.5, 2.5]).expand(4, 2),
        "shared": base,
        "part of shared": base[2],
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "large": torch.randint(0, 256, (3_000_001,), dtype=torch.uint8),
        "ü\n\"quoted\"": torch.ones(1),
    }  # fmt: skip
    return special | {str(dtype): torch.randint(0, 2, (7, 5)).to(dtype) for dtype in _DTYPES}


def assert_same(loaded: dict[str, torch.Tensor], saved: dict[str, torch.Tensor]) -> None:
    """Names, types, shapes and bytes are equal."""
    assert loaded.keys() == saved.keys()
    for name, tensor in saved.items():
        found, tensor = loaded[name], tensor.detach().resolve_conj().contiguous()
        assert (found.dtype, found.shape, found.is_contiguous()) == (tensor.dtype, tensor.shape, True), name
        raw = [each.reshape(-1).view(torch.uint8) for each in (found, tensor)]
        assert torch.equal(*raw), name


@on_each_engine
def test_every_tensor_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    saved, path = state(), tmp_path / "file"
    assert io.save(saved, path, metadata={"step": "7"}) == path.stat().st_size
    assert_same(io.load(path), saved)
    assert io.load_metadata(path) == {"step": "7"}
    assert os.listdir(tmp_path) == ["file"]


@on_each_engine
def test_the_package_safetensors_reads_what_was_saved(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="not run: package safetensors")
    saved = state()
    io.save(saved, tmp_path / "file", metadata={"step": "7"})
    assert_same(theirs.load_file(tmp_path / "file"), saved)
    with theirs.safe_open(tmp_path / "file", "pt") as opened:
        assert opened.metadata() == {"step": "7"}


@on_each_engine
def test_what_the_package_safetensors_saved_is_loaded(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="not run: package safetensors")
    saved = {name: tensor.detach().resolve_conj().clone().contiguous() for name, tensor in state().items()}
    theirs.save_file(saved, tmp_path / "file", metadata={"step": "7"})
    assert_same(io.load(tmp_path / "file"), saved)
    assert io.load_metadata(tmp_path / "file") == {"step": "7"}


@on_each_engine
def test_a_thousand_tensors_need_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(sessions, "_MOST_BYTES", 50_000)
    saved = {str(number): torch.full((number,), float(number)) for number in range(1000)}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 90, limits[1]))
    try:
        io.save(saved, tmp_path / "file")
        loaded = io.load(tmp_path / "file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert_same(loaded, saved)


@on_each_engine
def test_progress_rises_to_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_INTERVAL", 0)
    saved = {str(number): torch.ones(100_000) for number in range(8)}
    total = sum(tensor.nbytes for tensor in saved.values())
    reports: list[tuple[int, int]] = []
    io.save(saved, tmp_path / "file", progress=lambda done, of: reports.append((done, of)))
    io.load(tmp_path / "file", progress=lambda done, of: reports.append((done, of)))
    assert reports[-1] == (total, total)
    first = reports[: reports.index((total, total))]
    assert first == sorted(first)
    assert len(reports) > 10
    assert {of for _, of in reports} == {total}


@on_each_engine
def test_readers_during_saves_see_one_state_each(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def saved(number: int) -> dict[str, torch.Tensor]:
        return {str(name): torch.full((50_000,), number) for name in range(3 + number % 3)}

    io.save(saved(0), path)
    writer = threading.Thread(target=lambda: [io.save(saved(number), path) for number in range(1, 12)])
    writer.start()
    while writer.is_alive():
        loaded = io.load(path)
        assert_same(loaded, saved(int(loaded["0"][0])))
    writer.join()
    assert_same(io.load(path), saved(11))


@on_each_engine
def test_several_savers_to_one_path_leave_one_of_their_states(tmp_path: Path) -> None:
    path = tmp_path / "file"
    states = [{"a": torch.full((300_000,), number), "b": torch.tensor(number)} for number in range(4)]
    threads = [threading.Thread(target=io.save, args=(each, path)) for each in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = io.load(path)
    assert_same(loaded, states[int(loaded["b"])])
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "refused",
    [
        {"a": [1.0]},
        {"a": torch.ones(3, device="meta")},
        {"a": torch.ones(3).to_sparse()},
        {"a": torch.Tensor._make_wrapper_subclass(Wrapper, (3,), device="cpu")},
        {"a": torch.ones(3, dtype=torch.complex128)},
        {1: torch.ones(3)},
        {"__metadata__": torch.ones(3)},
    ],
    ids=["a list", "meta", "sparse", "a wrapper", "complex128", "an integer as name", "a reserved name"],
)
def test_what_the_layout_cannot_hold_is_refused_before_anything_is_written(
    tmp_path: Path, refused: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(InvalidTensors, match="ACC-504"):
        io.save(refused, tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_metadata_other_than_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTensors, match="all text"):
        io.save({}, tmp_path / "file", metadata={"step": 7})  # type: ignore[dict-item]


# --- files that are truncated, of another kind or hostile are errors that say what is wrong, without large allocations


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


# --- a save that does not succeed leaves the former file, and no other: by an error, or a killed process


_SAVER = """
path = folder + "/file"

def state(number):
    return {str(name): torch.full((200_000 + 7 * name,), number) for name in range(2 + number % 3)}

def save(number):
    io.save(state(number), path)

def found(kill):
    loaded = io.load(path)
    wanted = state(int(loaded["0"][0]))
    assert loaded.keys() == wanted.keys(), list(loaded)
    assert all(torch.equal(loaded[name], wanted[name]) for name in wanted)
    assert {*os.listdir(folder)} <= {"file", ".file.part"}, os.listdir(folder)
    return int(loaded["0"][0])
"""


@pytest.mark.parametrize(("kills", "least"), [(8, 0), pytest.param(200, 21, marks=pytest.mark.slow)])
def test_killed_processes_leave_the_former_state_or_the_new_one(
    run_program: Run, tmp_path: Path, kills: int, least: int
) -> None:
    assert min(storm(run_program, _SAVER, 0.15, tmp_path, kills)) >= least


def test_a_limit_of_the_file_size_leaves_the_former_file(
    run_program: Run, tmp_path: Path, engine: str
) -> None:
    ended = run_program(
        """
        folder = sys.argv[1] + "/saved"
        os.mkdir(folder)
        io.save({"a": torch.ones(3)}, folder + "/file")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            io.save({str(name): torch.zeros(100_000) for name in range(9)}, folder + "/file")
        except OSError as error:
            print(error.errno, os.listdir(folder), io.load(folder + "/file")["a"].tolist())
        """,
        tmp_path,
        ACCEL_IO_ENGINE=engine,
    )
    assert ended.stdout == f"{errno.EFBIG} ['file'] [1.0, 1.0, 1.0]\n", ended.stderr


def test_an_exception_of_the_progress_function_ends_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_INTERVAL", 0)
    io.save({"a": torch.ones(3)}, tmp_path / "file")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        io.save({str(name): torch.zeros(1_000_000) for name in range(9)}, tmp_path / "file", progress=stop)
    assert os.listdir(tmp_path) == ["file"]
    assert torch.equal(io.load(tmp_path / "file")["a"], torch.ones(3))


def test_a_folder_that_cannot_be_synchronized_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io.save({"a": torch.ones(3)}, tmp_path / "file")
    open_ = os.open

    def refuse_folders(path: Any, flags: int, *mode: int) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return open_(path, flags, *mode)

    monkeypatch.setattr(os, "open", refuse_folders)
    with pytest.raises(PermissionError):
        io.save({"a": torch.zeros(3)}, tmp_path / "file")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["file"]
    assert torch.equal(io.load(tmp_path / "file")["a"], torch.ones(3))
