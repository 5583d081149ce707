# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A dict of tensors is saved and loaded as it is, in files that the package safetensors reads, and the reverse."""

import os
import threading
from pathlib import Path

import pytest
import torch

from accel_ops import io
from accel_ops.errors import InvalidTensors
from accel_ops.io import session as sessions

pytestmark = pytest.mark.usefixtures("each_engine")
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


def test_every_tensor_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    saved, path = state(), tmp_path / "file"
    assert io.save(saved, path, metadata={"step": "7"}) == path.stat().st_size
    assert_same(io.load(path), saved)
    assert io.load_metadata(path) == {"step": "7"}
    assert os.listdir(tmp_path) == ["file"]


def test_an_empty_dict_is_saved(tmp_path: Path) -> None:
    io.save({}, tmp_path / "file")
    assert (io.load(tmp_path / "file"), io.load_metadata(tmp_path / "file")) == ({}, {})


def test_the_package_safetensors_reads_what_was_saved(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="not run: package safetensors")
    saved = state()
    io.save(saved, tmp_path / "file", metadata={"step": "7"})
    assert_same(theirs.load_file(tmp_path / "file"), saved)
    with theirs.safe_open(tmp_path / "file", "pt") as opened:
        assert opened.metadata() == {"step": "7"}


def test_what_the_package_safetensors_saved_is_loaded(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="not run: package safetensors")
    saved = {name: tensor.detach().resolve_conj().clone().contiguous() for name, tensor in state().items()}
    theirs.save_file(saved, tmp_path / "file", metadata={"step": "7"})
    assert_same(io.load(tmp_path / "file"), saved)
    assert io.load_metadata(tmp_path / "file") == {"step": "7"}


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
