# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's `async_io`: upstream's names, arguments and results, without its faults."""

import errno
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from accel_ops.errors import TransferFailed
from accel_ops.io.builder import AsyncIOBuilder

_SIZE = 100_000


@pytest.fixture
def op() -> Any:
    return AsyncIOBuilder().load()


@pytest.fixture
def handle(op: Any, each_engine: None) -> Iterator[Any]:
    made = op.aio_handle(16384, 8, False, True, 2)
    yield made
    made._session.close()


def test_defaults_are_reported(op):
    made = op.aio_handle()
    assert (made.get_block_size(), made.get_queue_depth(), made.get_alignment()) == (1 << 20, 128, 512)
    assert op.aio_handle(intra_op_parallelism=4).get_alignment() == 2048


@pytest.mark.parametrize("wrong", [{"block_size": 0}, {"queue_depth": -1}, {"intra_op_parallelism": 0}])
def test_arguments_that_make_no_handle_are_refused(op, wrong):
    with pytest.raises(ValueError, match="positive integer"):
        op.aio_handle(**wrong)


def test_every_form_of_a_call_transfers(handle, tmp_path):
    """In addition to those of the conformance suite."""
    path, data = tmp_path / "file", torch.randint(0, 256, (_SIZE + 3,), dtype=torch.uint8)[3:]
    into = torch.zeros_like(data)
    forms = (
        (lambda: handle.pwrite(data, path, False, False), lambda: handle.pread(into, path, True, False)),
        (
            lambda: handle.pwrite(data, path, True, **{"async": True}) + handle.wait(),
            lambda: handle.pread(into, path, False, True, 0) + handle.wait(),
        ),
        (
            lambda: handle.sync_pwrite(buffer=data, filename=str(path)),
            lambda: handle.sync_pread(buffer=into, filename=str(path)),
        ),
        (lambda: handle.write(data, path, False) + 1, lambda: handle.read(into, path, True) + 1),
    )
    for write, read in forms:
        path.write_bytes(b"")
        assert write() == 1
        assert path.read_bytes() == data.numpy().tobytes()
        assert read() == 1
        assert torch.equal(into, data)
        into.zero_()


def test_a_descriptor_can_be_written_and_stays_open(handle, tmp_path):
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    data = torch.arange(10_000)
    assert handle.async_pwrite(data, fd, 0) == handle.async_pwrite(data, fd=fd, file_offset=data.nbytes) == 0
    assert handle.wait() == 2
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == data.numpy().tobytes() * 2


def test_a_synchronous_call_leaves_pending_requests_to_wait(handle, tmp_path):
    handle.async_pwrite(torch.ones(10), tmp_path / "a")
    assert handle.sync_pwrite(torch.ones(10), tmp_path / "b") == 1
    assert handle.wait() == 1


def test_wait_raises_the_first_error_after_all_have_ended(handle, tmp_path):
    (tmp_path / "short").write_bytes(b"x" * 10)
    (tmp_path / "long").write_bytes(b"y" * 400_000)
    reads = [torch.zeros(100_000) for _ in range(3)]
    for into, name in zip(reads, ("short", "long", "short"), strict=True):
        assert handle.async_pread(into, tmp_path / name) == 0
    with pytest.raises(TransferFailed) as caught:
        handle.wait()
    assert (caught.value.errno, caught.value.done) == (errno.ENODATA, 10)
    assert len(caught.value.__notes__) == 1
    assert reads[1].view(torch.uint8).unique().tolist() == [ord("y")]
    assert handle.wait() == 0


def test_a_validation_finds_other_bytes(op, tmp_path, monkeypatch):
    handle = op.aio_handle()
    path, data = tmp_path / "file", torch.ones(5000)
    submit = handle._session.run

    def corrupting(*arguments, **options):
        done: int = submit(*arguments, **options)
        with path.open("r+b") as file:
            file.write(b"?")
        return done

    monkeypatch.setattr(handle._session, "run", corrupting)
    handle.write(data, path, False)
    with pytest.raises(TransferFailed, match="validation failed"):
        handle.write(data, path, True)


def test_the_example_of_locked_memory_has_upstream_s_name_and_the_right_one(handle):
    for name, dtype in (("example_tenosr", torch.bfloat16), ("example_tensor", torch.float32)):
        tensor = handle.new_cpu_locked_tensor(1000, **{name: torch.empty(0, dtype=dtype)})
        assert (tensor.shape, tensor.dtype) == ((1000,), dtype)


def test_loading_the_op_starts_no_process_and_opens_no_engine(op, monkeypatch):
    gc.collect()  # what earlier tests have left may go before, and during this one
    threads, descriptors = set(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    loaded = AsyncIOBuilder().load()
    loaded.aio_handle()
    assert set(os.listdir("/proc/self/task")) <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors
