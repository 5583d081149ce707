# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is written is what is read: any size, offset, memory, type and shape, on every engine and file system."""

import os
import random
import shutil
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_ops.errors import TransferFailed
from accel_ops.io import session as sessions
from accel_ops.io import transfers
from accel_ops.io.engines import EngineOptions
from accel_ops.io.files import open_file
from accel_ops.io.session import DeviceTransfer, Session
from accel_ops.io.transfers import Transfer
from accel_ops.memory import MEMORY
from shared.children import run

_EDGES = (0, 1, 511, 512, 513, 4095, 4096, 4097, 16383, 16384, 16385, 65536, 1 << 20, (1 << 20) + 1)


class Memory(bytearray):
    """Memory of a tensor; there can be weak references to it."""


def drawn_size(draw: random.Random, most: int) -> int:
    """A size near an edge, or of any magnitude."""
    return min(most, draw.choice(_EDGES) if draw.random() < 0.4 else int(2 ** draw.uniform(0, 26)))


def drawn_bytes(draw: random.Random, size: int) -> torch.Tensor:
    """Memory of a random alignment: locked, or of torch's allocator."""
    shift = draw.choice((0, 0, 1, 8, 64, 100, 512))
    locked = draw.random() < 0.3
    whole = MEMORY.allocate(size + shift, torch.uint8) if locked else torch.empty(size + shift).byte()
    return whole[shift : shift + size]


def _moved(session: Session, draw: random.Random, *request: Any, **where: Any) -> int:
    """Transfer at once, or in flight; return the bytes."""
    once = draw.random() < 0.5
    return session.run(*request, **where) if once else session.submit(*request, **where).wait()


def _round_trip(session: Session, path: Path, draw: random.Random, most: int) -> None:
    """Write into a file of other bytes, compare the file, and read part of it back."""
    size = drawn_size(draw, most)
    offset = draw.choice((0, 0, draw.randrange(10000), drawn_size(draw, 1 << 21)))
    before = draw.randbytes(min(draw.choice((0, offset, offset + size, offset + size + 5000)), 1 << 20))
    path.write_bytes(before)
    if before and draw.random() < 0.1:
        before = before[: draw.randrange(len(before))]
        os.truncate(path, len(before))
    data = drawn_bytes(draw, size)
    data.copy_(torch.frombuffer(bytearray(draw.randbytes(size)), dtype=torch.uint8) if size else data)
    assert _moved(session, draw, data, path, write=True, offset=offset) == size
    expected = bytearray(before.ljust(offset + size, b"\0") if size else before)
    expected[offset : offset + size] = data.numpy().tobytes()
    assert path.read_bytes() == expected
    first = draw.randrange(len(expected) + 1)
    into = drawn_bytes(draw, draw.choice((len(expected) - first, min(100, len(expected) - first))))
    assert _moved(session, draw, into, str(path), write=False, offset=first) == into.numel()
    assert into.numpy().tobytes() == expected[first : first + into.numel()]


def round_trips(path: Path, engine: str, sessions: int, count: int, most: int) -> None:
    """Make as many round trips on each of some sessions, with options that are drawn."""
    draw = random.Random(f"{engine}{sessions}{count}{most}")
    for _ in range(sessions):
        options = EngineOptions(
            draw.choice((4096, 50000, 1 << 20)), draw.choice((1, 3, 32, 100_000)), draw.choice((1, 3))
        )
        session = Session(options, engine)
        try:
            for _ in range(count):
                _round_trip(session, path, draw, most)
        finally:
            session.close()


@pytest.mark.parametrize(
    ("sessions", "count", "most"),
    [
        (1, 40, 3 << 20),
        pytest.param(12, 70, 4 << 20, marks=pytest.mark.slow),
        pytest.param(3, 70, 64 << 20, marks=pytest.mark.slow),
    ],
)
def test_random_requests_are_byte_equal(engine, tmp_path, sessions, count, most):
    round_trips(tmp_path / "file", engine, sessions, count, most)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_every_type_and_layout_keeps_its_elements(session, tmp_path, dtype):
    tensor = torch.randint(0, 2, (70, 30)).to(dtype)
    views = [tensor, tensor.t(), tensor[::2, 3:], tensor[0, 0], tensor[:0], tensor.flip(1)]
    if dtype.is_complex:
        tensor.mul_(1 + 2j)
        views += [tensor.conj(), tensor.conj().imag]
    for number, view in enumerate(views):
        path = tmp_path / str(number)
        session.submit(view, path, write=True).wait()
        for into in (torch.zeros_like(view), torch.zeros(*view.shape, 2, dtype=view.dtype)[..., 1]):
            session.submit(into, path, write=False).wait()
            assert torch.equal(into, view.resolve_conj().resolve_neg())
            session.run(into.zero_(), path, write=False)
            assert torch.equal(into, view.resolve_conj().resolve_neg())


def test_writes_in_flight_may_adjoin_at_any_byte(engine, tmp_path):
    # With direct I/O of half a page and a buffered write of the other half, the kernel reports EIO, or loses one.
    session, path = Session(EngineOptions(), engine), tmp_path / "file"
    parts = [torch.full((4 * size,), size % 251, dtype=torch.uint8) for size in range(1, 1000)]
    started: list[Transfer | DeviceTransfer] = []
    with path.open("wb") as file:
        for position, part in enumerate(parts):
            offset = sum(each.nbytes for each in parts[:position])
            started.append(session.submit(part, path, write=True, offset=offset))
            if len(started) == 32:
                started.pop(0).wait()
        for transfer in started:
            transfer.wait()
        os.fsync(file.fileno())
    assert path.read_bytes() == torch.cat(parts).numpy().tobytes()
    session.close()


def test_overlapping_requests_leave_one_of_them_at_each_byte(session, tmp_path):
    path = tmp_path / "file"
    tensors = [torch.full((200_000,), value, dtype=torch.uint8) for value in (1, 2)]
    for write in [session.submit(tensor, path, write=True, offset=0) for tensor in tensors]:
        write.wait()
    assert set(path.read_bytes()) <= {1, 2}
    assert path.stat().st_size == 200_000


def test_a_new_file_is_private_and_an_old_one_is_not_truncated(session, tmp_path):
    path = tmp_path / "file"
    session.submit(torch.zeros(100_000, dtype=torch.uint8), path, write=True).wait()
    assert path.stat().st_mode & 0o777 == 0o600
    session.submit(torch.ones(10, dtype=torch.uint8), os.fsencode(path), write=True).wait()
    assert path.read_bytes() == b"\1" * 10 + b"\0" * 99_990


# --- other file systems, which root mounts for the test: each has direct I/O of its own kind, or none


_LAYERS = "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work"
#: Name: the commands that make it and mount it: {0} is a folder, in which an image of 600 MiB is.
_FILE_SYSTEMS = {
    "tmpfs": ("true", "mount -t tmpfs -o size=400m none {0}/mounted"),
    "overlay": ("mkdir {0}/lower {0}/upper {0}/work", f"mount -t overlay -o {_LAYERS} none {{0}}/mounted"),
    "ext4": ("mkfs.ext4 -q -F {0}/image", "mount -o loop {0}/image {0}/mounted"),
    "xfs": ("mkfs.xfs -q -f {0}/image", "mount -o loop {0}/image {0}/mounted"),
    "btrfs": ("mkfs.btrfs -q -f {0}/image", "mount -o loop {0}/image {0}/mounted"),
    "FUSE": ("mkfs.ext4 -q -F {0}/image", "fuse2fs {0}/image {0}/mounted"),
}


@pytest.fixture(params=_FILE_SYSTEMS)
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on each file system."""
    if os.geteuid() != 0:
        pytest.skip("not run: mounting a file system needs root")
    target = tmp_path / "mounted"
    target.mkdir()
    with (tmp_path / "image").open("wb") as file:
        file.truncate(600 << 20)
    for command in _FILE_SYSTEMS[request.param]:
        program, *arguments = command.format(tmp_path).split()
        if shutil.which(program) is None:
            pytest.skip(f"not run: program {program}")
        done = run(program, *arguments)
        if done.returncode:
            pytest.skip(f"not run: {request.param} cannot be mounted here: {done.stderr.strip()}")
    yield target
    subprocess.run(["umount", str(target)], check=True)


@pytest.mark.parametrize(
    ("count", "most"), [(24, 1 << 20), pytest.param(600, 16 << 20, marks=pytest.mark.slow)]
)
def test_requests_are_byte_equal(mounted, engine, count, most):
    round_trips(mounted / "file", engine, 3, count // 3, most)


# --- what a transfer promises


def test_a_wait_with_a_limit_ends(session, tmp_path):
    session.engine.pause(-1)
    transfer = session.submit(torch.ones(1000), tmp_path / "file", write=True)
    assert not transfer.ended(0.01)
    with pytest.raises(TimeoutError):
        transfer.wait(0.01)
    session.engine.resume()
    assert (transfer.wait(), transfer.wait(1)) == (4000, 4000)


def test_a_device_s_transfer_that_fails_keeps_no_tensor(session, tmp_path):
    (tmp_path / "file").write_bytes(b"short")
    memory = Memory(100_000)
    tensor, kept = torch.frombuffer(memory, dtype=torch.uint8), weakref.ref(memory)
    opened = open_file(tmp_path / "file", write=False, size=tensor.nbytes, native=False)
    transfer = DeviceTransfer(session, tensor, opened, write=False, offset=0)
    del tensor, memory
    with pytest.raises(TransferFailed):
        transfer.wait()
    assert kept() is None


def test_the_limit_at_exit_is_one_for_all_transfers(monkeypatch):
    now, limits = 0.0, []

    class Stuck:
        file = SimpleNamespace(name="file")

        def ended(self, timeout):
            nonlocal now
            now += timeout
            limits.append(timeout)
            return False

    monkeypatch.setattr(transfers, "such_as", lambda condition: [Stuck(), Stuck(), Stuck()])
    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: now))
    with pytest.warns(RuntimeWarning, match="incomplete"):
        sessions._at_exit()
    assert limits == [30, 0, 0]
