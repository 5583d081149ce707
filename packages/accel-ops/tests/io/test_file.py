# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`File` and its futures: for threads and for asyncio."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from accel_ops import io
from accel_ops.errors import TransferFailed


@pytest.fixture
def file(each_engine: None, tmp_path: Path) -> Iterator[io.File]:
    """A new file on each engine."""
    with io.File(tmp_path / "file", block_size=16384, depth=4, workers=2, durability="data") as made:
        yield made


def test_what_is_written_is_read_at_its_offset(file: io.File, engine: str) -> None:
    data, into = torch.arange(100_000), torch.empty(100_000, dtype=torch.int64)
    assert file.write(data, 777) == data.nbytes
    assert file.read(into, 777) == data.nbytes
    assert torch.equal(into, data)
    assert file.engine() == (engine, "ACCEL_IO_ENGINE")


def test_futures_are_done_with_all_bytes(file: io.File) -> None:
    data = torch.arange(100_000)
    futures = [file.submit_write(data[begin : begin + 1000], begin * 8) for begin in range(0, 100_000, 1000)]
    assert [future.result() for future in futures] == [8000] * 100
    assert all(future.done() and future.progress() == 8000 for future in futures)
    into = torch.empty_like(data)
    future = file.submit_read(into)
    assert future.wait()
    assert (future.result(), future.result(timeout=1)) == (data.nbytes, data.nbytes)
    assert torch.equal(into, data)


def test_futures_can_be_awaited(file: io.File) -> None:
    data = torch.arange(200_000)

    async def transfer() -> torch.Tensor:
        halves = (data[:100_000], data[100_000:])
        assert await asyncio.gather(
            *(file.submit_write(half, 800_000 * position) for position, half in enumerate(halves))
        ) == [800_000, 800_000]
        into = torch.empty_like(data)
        assert await file.submit_read(into) == data.nbytes
        with pytest.raises(TransferFailed) as caught:
            await file.submit_read(torch.empty_like(data), 8)
        assert (caught.value.errno, caught.value.done) == (errno.ENODATA, data.nbytes - 8)
        return into

    assert torch.equal(asyncio.run(transfer()), data)


def test_a_cancelled_task_cancels_its_transfer(file: io.File) -> None:
    async def cancel() -> io.TransferFuture:
        file._session.engine.pause(-1)
        future = file.submit_write(torch.ones(1_000_000))
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        file._session.engine.resume()
        return future

    with pytest.raises(TransferFailed) as caught:
        asyncio.run(cancel()).result()
    assert (caught.value.errno, caught.value.done) == (errno.ECANCELED, 0)


def test_a_wait_with_a_limit_ends(file: io.File) -> None:
    file._session.engine.pause(-1)
    future = file.submit_write(torch.ones(1000))
    assert not future.done()
    assert not future.wait(0.01)
    assert future.progress() == 0
    with pytest.raises(TimeoutError):
        future.result(0.01)
    file._session.engine.resume()
    assert future.result() == 4000


def test_functions_transfer_one_tensor(tmp_path: Path) -> None:
    assert io.write(tmp_path / "file", torch.ones(10), 4, durability="full") == 40
    into = torch.empty(10)
    assert io.read(tmp_path / "file", into, 4) == 40
    assert torch.equal(into, torch.ones(10))


def test_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sometimes"):
        io.File(tmp_path / "file", durability="sometimes")
    with pytest.raises(ValueError, match="-1"):
        io.File(tmp_path / "file").write(torch.ones(3), -1)
    assert not (tmp_path / "file").exists()
