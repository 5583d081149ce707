# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint on our storage: torch's format, and errors that say what failed."""

import errno
import gc
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("not run: torch without distributed", allow_module_level=True)

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from accel_ops.io.checkpoint import CheckpointReader, CheckpointWriter
from accel_ops.io.session import File
from accel_ops.memory import MEMORY

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("each_engine")]


def state(number: int = 0) -> dict[str, Any]:
    """Tensors of several sizes and layouts, and objects."""
    base = torch.arange(60.0).view(6, 10) + number
    return {
        "scalar": torch.tensor(3.5 + number),
        "empty": torch.empty(0, 7),
        "nested": {"strided": base[::2, 3:], "transposed": base.t(), "half": base.bfloat16()},
        "large": torch.randint(0, 256, (17_000_001,), dtype=torch.uint8),
        "optimizer": {"step": number, "betas": (0.9, 0.95)},
    }


def empty(tree: Any) -> Any:
    """Return the same tree with other values."""
    if isinstance(tree, dict):
        return {name: empty(each) for name, each in tree.items()}
    return torch.zeros_like(tree) if isinstance(tree, torch.Tensor) else None


def assert_same(found: Any, wanted: Any) -> None:
    """The trees have equal values."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name in wanted:
            assert_same(found[name], wanted[name])
    else:
        assert torch.equal(found, wanted) if isinstance(wanted, torch.Tensor) else found == wanted


def loaded(folder: Path, like: Any, reader: type[FileSystemReader] = CheckpointReader) -> Any:
    """Load a checkpoint."""
    into = empty(like)
    dcp.load(into, storage_reader=reader(folder))
    return into


@pytest.mark.parametrize("threads", [1, 3])
def test_what_was_saved_is_loaded_also_by_torch(tmp_path: Path, threads: int) -> None:
    saved = state()
    dcp.save(saved, storage_writer=CheckpointWriter(tmp_path, thread_count=threads))
    assert_same(loaded(tmp_path, saved), saved)
    assert_same(loaded(tmp_path, saved, FileSystemReader), saved)


def test_what_torch_saved_is_loaded(tmp_path: Path) -> None:
    saved = state()
    dcp.save(saved, storage_writer=FileSystemWriter(tmp_path))
    assert_same(loaded(tmp_path, saved), saved)


def test_a_save_replaces_the_former_checkpoint_and_what_a_killed_one_has_left(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=FileSystemWriter(tmp_path))
    dcp.save(state(1), storage_writer=CheckpointWriter(tmp_path))
    (tmp_path / f"__3_{'0' * 32}_0.distcp").write_bytes(b"left")
    (tmp_path / ".metadata.tmp").write_bytes(b"left" * 100_000)
    (tmp_path / "notes.distcp").write_text("not ours")
    saved = state(2)
    dcp.save(saved, storage_writer=CheckpointWriter(tmp_path))
    assert_same(loaded(tmp_path, saved), saved)
    names = sorted(os.listdir(tmp_path))
    assert len(names) == 3, names
    assert names[0] == ".metadata"
    assert names[2] == "notes.distcp"


def test_saves_with_a_cached_plan_write_to_new_files(tmp_path: Path) -> None:
    planner = DefaultSavePlanner(enable_plan_caching=True)
    saved = state()
    names = set()
    for number in range(3):
        saved["scalar"] = torch.tensor(float(number))
        dcp.save(saved, storage_writer=CheckpointWriter(tmp_path), planner=planner)
        names |= {name for name in os.listdir(tmp_path) if name.endswith(".distcp")}
        assert_same(loaded(tmp_path, saved), saved)
    assert len(names) == 3


def test_async_save_saves_what_the_state_was_at_the_call(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        saved = state()
        future = dcp.async_save(saved, storage_writer=CheckpointWriter(tmp_path))
        wanted, saved["large"] = state() | {"large": saved["large"].clone()}, saved["large"].zero_()
        future.result()
        assert_same(loaded(tmp_path, wanted), wanted)
    finally:
        torch.distributed.destroy_process_group()


def test_each_rank_saves_its_own_without_collectives(tmp_path: Path) -> None:
    saved = state()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        for _ in range(2):
            (tmp_path / f"__1_{'0' * 32}_0.distcp").write_bytes(b"of another rank")
            dcp.save(saved, storage_writer=CheckpointWriter(tmp_path), use_collectives=False)
            assert len(os.listdir(tmp_path)) == 3
        assert (tmp_path / "__0.metadata").exists()
    finally:
        torch.distributed.destroy_process_group()


def test_overwrite_false_keeps_a_checkpoint(tmp_path: Path) -> None:
    saved = state()
    dcp.save(saved, storage_writer=CheckpointWriter(tmp_path / "new" / "folder", overwrite=False))
    with pytest.raises(CheckpointException) as caught:
        dcp.save(state(1), storage_writer=CheckpointWriter(tmp_path / "new" / "folder", overwrite=False))
    assert isinstance(cause(caught), FileExistsError)
    assert_same(loaded(tmp_path / "new" / "folder", saved), saved)


def test_a_save_whose_files_are_removed_meanwhile_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = state()
    dcp.save(saved, storage_writer=CheckpointWriter(tmp_path))
    before = set(os.listdir(tmp_path))
    write = CheckpointWriter.write_data

    def removed(writer: CheckpointWriter, *given: Any) -> Any:
        written = write(writer, *given)
        for name in set(os.listdir(tmp_path)) - before:
            os.unlink(tmp_path / name)
        return written

    monkeypatch.setattr(CheckpointWriter, "write_data", removed)
    with pytest.raises(CheckpointException, match="ACC-509") as caught:
        dcp.save(state(1), storage_writer=CheckpointWriter(tmp_path))
    assert getattr(cause(caught), "errno", 0) == errno.ENOENT
    assert_same(loaded(tmp_path, saved), saved)


def cause(caught: pytest.ExceptionInfo[CheckpointException]) -> BaseException:
    """Return the exception of rank 0."""
    found: BaseException = caught.value.failures[0][0]
    return found


@pytest.mark.parametrize("damage", ["cut", "removed", "no metadata", "foreign metadata", "empty metadata"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: str) -> None:
    dcp.save(state(), storage_writer=CheckpointWriter(tmp_path))
    data = next(tmp_path.glob("*.distcp"))
    {
        "cut": lambda: os.truncate(data, 10_000_000),
        "removed": data.unlink,
        "no metadata": (tmp_path / ".metadata").unlink,
        "foreign metadata": lambda: (tmp_path / ".metadata").write_bytes(b"safetensors?"),
        "empty metadata": lambda: (tmp_path / ".metadata").write_bytes(b""),
    }[damage]()
    with pytest.raises(CheckpointException) as caught:
        loaded(tmp_path, state())
    text = str(cause(caught))  # torch keeps the text alone where .metadata cannot be read
    assert ("No such file" if damage in ("removed", "no metadata") else "ACC-511") in text
    assert (data.name if damage in ("cut", "removed") else ".metadata") in text


def test_a_writer_travels_to_another_process(tmp_path: Path) -> None:
    writer = pickle.loads(pickle.dumps(CheckpointWriter(tmp_path)))
    dcp.save({"a": torch.ones(3)}, storage_writer=writer)
    assert_same(loaded(tmp_path, {"a": torch.ones(3)}), {"a": torch.ones(3)})


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=CheckpointWriter(tmp_path))
    loaded(tmp_path, state())
    gc.collect()  # what earlier tests have left may go before, and meanwhile
    before = len(os.listdir("/proc/self/fd"))
    dcp.save(state(), storage_writer=CheckpointWriter(tmp_path))
    loaded(tmp_path, state())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_metadata_file_that_cannot_be_written_leaves_the_former_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = state()
    dcp.save(saved, storage_writer=CheckpointWriter(tmp_path))
    before = set(os.listdir(tmp_path))

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(pickle, "dump", full)
    with pytest.raises(CheckpointException, match="full"):
        dcp.save(state(1), storage_writer=CheckpointWriter(tmp_path))
    assert set(os.listdir(tmp_path)) == before
    assert_same(loaded(tmp_path, saved), saved)


def test_a_save_that_fails_keeps_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before, tensor = len(MEMORY._blocks), torch.ones(5_000_000)
    kept = weakref.ref(tensor)

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(File, "submit_write", full)
    with pytest.raises(CheckpointException, match="full"):
        dcp.save({"tensor": tensor}, storage_writer=CheckpointWriter(tmp_path))
    del tensor
    gc.collect()
    assert kept() is None
    assert len(MEMORY._blocks) == before


def test_an_error_of_a_thread_of_the_writer_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, failed, fsync = state(), threading.Event(), os.fsync
    dcp.save(saved, storage_writer=CheckpointWriter(tmp_path))
    before = set(os.listdir(tmp_path))

    def fail_beside_the_main_thread(descriptor: int) -> None:
        if threading.current_thread() is threading.main_thread():
            failed.wait(60)  # with its first file: the others are for the threads
            return fsync(descriptor)
        failed.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail_beside_the_main_thread)
    with pytest.raises(CheckpointException) as caught:
        dcp.save(state(1), storage_writer=CheckpointWriter(tmp_path, thread_count=3))
    monkeypatch.undo()
    assert failed.is_set()
    assert getattr(cause(caught), "errno", 0) == errno.EIO
    assert set(os.listdir(tmp_path)) == before
    assert_same(loaded(tmp_path, saved), saved)
