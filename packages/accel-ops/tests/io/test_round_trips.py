# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is written is what is read: any size, offset, alignment of memory, type and shape, on every engine."""

import os
from pathlib import Path

import pytest
import torch

from accel_ops.io.engines import EngineOptions
from accel_ops.io.session import DeviceTransfer, Session
from accel_ops.io.transfers import Durability, Transfer

from .conftest import round_trips


@pytest.mark.parametrize(
    ("sessions", "count", "most"),
    [
        (1, 40, 3 << 20),
        *(
            pytest.param(sessions, 70, most << 20, marks=pytest.mark.slow)
            for sessions, most in ((48, 4), (3, 64))
        ),
    ],
)
def test_random_requests_are_byte_equal(
    engine: str, tmp_path: Path, sessions: int, count: int, most: int
) -> None:
    round_trips(tmp_path / "file", engine, sessions, count, most)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_every_type_and_layout_keeps_its_elements(
    session: Session, tmp_path: Path, dtype: torch.dtype
) -> None:
    tensor = torch.randint(0, 2, (70, 30)).to(dtype)
    for number, view in enumerate(
        (tensor, tensor.t(), tensor[::2, 3:], tensor[0, 0], tensor[:0], tensor.flip(1))
    ):
        path = tmp_path / str(number)
        session.submit(view, path, write=True).wait()
        for into in (torch.zeros_like(view), torch.zeros(*view.shape, 2, dtype=dtype)[..., 1]):
            session.submit(into, path, write=False).wait()
            assert torch.equal(into, view)


def test_conjugate_and_negative_views_are_written_with_their_values(session: Session, tmp_path: Path) -> None:
    tensor = torch.randn(1000, dtype=torch.complex64)
    for view in (tensor.conj(), tensor.conj().imag):
        session.submit(view, tmp_path / "file", write=True).wait()
        into = torch.empty(1000, dtype=view.dtype)
        session.submit(into, tmp_path / "file", write=False).wait()
        assert torch.equal(into, view.resolve_conj().resolve_neg())


def test_many_requests_of_several_files_are_in_flight_at_once(session: Session, tmp_path: Path) -> None:
    tensors = [torch.full((5000 + number,), number, dtype=torch.int32) for number in range(60)]
    writes = [
        session.submit(t, tmp_path / f"{n % 7}", write=True, offset=n * 30000) for n, t in enumerate(tensors)
    ]
    for write in reversed(writes):
        write.wait()
    copies = [torch.empty_like(tensor) for tensor in tensors]
    reads = [
        session.submit(t, tmp_path / f"{n % 7}", write=False, offset=n * 30000) for n, t in enumerate(copies)
    ]
    for read in reads:
        read.wait()
    assert all(map(torch.equal, tensors, copies))


def test_writes_in_flight_may_adjoin_at_any_byte(engine: str, tmp_path: Path) -> None:
    # With direct I/O of half a page beside a buffered write of the other half, the kernel reports EIO, or loses one.
    session, path = Session(EngineOptions(), engine), tmp_path / "file"
    parts = [torch.full((4 * size,), size % 251, dtype=torch.uint8) for size in range(1, 1000)]
    transfers: list[Transfer | DeviceTransfer] = []
    with path.open("wb") as file:
        for position, part in enumerate(parts):
            offset = sum(each.nbytes for each in parts[:position])
            transfers.append(session.submit(part, path, write=True, offset=offset))
            if len(transfers) == 32:
                transfers.pop(0).wait()
        for transfer in transfers:
            transfer.wait()
        os.fsync(file.fileno())
    assert path.read_bytes() == torch.cat(parts).numpy().tobytes()
    session.close()


def test_overlapping_requests_leave_one_of_them_at_each_byte(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "file"
    tensors = [torch.full((200_000,), value, dtype=torch.uint8) for value in (1, 2)]
    for write in [session.submit(tensor, path, write=True, offset=0) for tensor in tensors]:
        write.wait()
    assert set(path.read_bytes()) <= {1, 2}
    assert path.stat().st_size == 200_000


def test_a_new_file_is_private_and_an_old_one_is_not_truncated(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "file"
    session.submit(torch.zeros(100_000, dtype=torch.uint8), path, write=True).wait()
    assert path.stat().st_mode & 0o777 == 0o600
    session.submit(torch.ones(10, dtype=torch.uint8), os.fsencode(path), write=True).wait()
    assert path.read_bytes() == b"\1" * 10 + b"\0" * 99_990


@pytest.mark.parametrize("durability", ["none", "data", "full"])
def test_every_durability_writes_the_same(session: Session, tmp_path: Path, durability: str) -> None:
    data = torch.arange(50_000)
    session.submit(data, tmp_path / "file", write=True, durability=Durability(durability)).wait()
    assert (tmp_path / "file").read_bytes() == data.numpy().tobytes()
