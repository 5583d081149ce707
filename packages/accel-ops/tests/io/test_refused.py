# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files, descriptors and tensors that cannot be transferred are refused before anything happens, and nothing leaks."""

import errno
import gc
import os
from pathlib import Path

import pytest
import torch

from accel_ops.errors import InvalidTensors
from accel_ops.io.session import Session


def descriptors() -> int:
    """The number of open descriptors of this process, without those of what nobody refers to any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_files_that_cannot_be_transferred_are_refused_without_leaking(
    session: Session, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    data = torch.zeros(10_000)
    refused = {
        "pipe": errno.ESPIPE,
        ".": errno.EISDIR,
        "none/file": errno.ENOENT,
        "pipe/file": errno.ENOTDIR,
        "x" * 300: errno.ENAMETOOLONG,
    }
    session.submit(data, tmp_path / "file", write=True).wait()
    before = descriptors()
    for name, number in refused.items():
        for write in (True, False):
            with pytest.raises(OSError) as caught:
                session.submit(data, tmp_path / name, write=write)
            assert caught.value.errno == number
    with pytest.raises(FileNotFoundError):
        session.submit(data, tmp_path / "none", write=False)
    with pytest.raises(OSError) as caught:
        session.submit(data, "/dev/null", write=True)
    assert caught.value.errno == errno.ESPIPE
    with pytest.raises(ValueError, match="negative"):
        session.submit(data, tmp_path / "file", write=True, offset=-1)
    assert descriptors() == before


def test_descriptors_stay_the_caller_s_and_must_be_open_for_it(session: Session, tmp_path: Path) -> None:
    path, data = tmp_path / "file", torch.arange(20_000)
    into = torch.empty_like(data)
    for flags in (0, os.O_APPEND, os.O_DIRECT, os.O_DIRECT | os.O_APPEND):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        write = session.submit(data, fd, write=True, offset=40)
        write.wait()
        read = session.submit(into, fd, write=False, offset=40)
        os.close(fd)  # the transfer has its own
        read.wait()
        assert torch.equal(into, data)
        assert path.read_bytes()[40:] == data.numpy().tobytes()
        path.unlink()
    path.touch()
    for flags, write_it in ((os.O_RDONLY, True), (os.O_WRONLY, False)):
        fd = os.open(path, flags)
        with pytest.raises(OSError) as caught:
            session.submit(data, fd, write=write_it)
        assert caught.value.errno == errno.EBADF
        os.close(fd)
        with pytest.raises(OSError) as caught:
            session.submit(data, fd, write=True)
        assert caught.value.errno == errno.EBADF


def test_tensors_without_memory_of_their_own_are_refused(session: Session, tmp_path: Path) -> None:
    freed = torch.zeros(1000)
    freed.untyped_storage().resize_(0)
    for tensor in (freed, torch.empty(5, device="meta"), torch.eye(3).to_sparse(), [1.0]):
        for write in (True, False):
            with pytest.raises(InvalidTensors):
                session.submit(tensor, tmp_path / "file", write=write)  # type: ignore[arg-type]
    with pytest.raises(InvalidTensors, match="at one address"):
        session.submit(torch.zeros(1).expand(5), tmp_path / "file", write=False)
    assert not (tmp_path / "file").exists()
