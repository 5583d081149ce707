# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Who may share memory with whom; everybody else uses gloo, all ranks alike."""

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist

from accel_cpu import CPU_Accelerator
from accel_cpu.shm import library, rendezvous
from accel_cpu.shm.rendezvous import Facts

NONCE = b"\0\1" * 16
FACTS = Facts(1, "", "a", 1, 0, (0,))


@pytest.mark.parametrize(
    ("differs", "reason"),
    [
        ({"host": "b"}, "the ranks are on different hosts"),
        ({"processes": 2}, "the ranks are in different containers"),
        ({"user": 1000}, "the ranks belong to different users"),
        ({"problem": "no compiler"}, "rank 1: no compiler"),
        ({"pid": 1}, "several ranks are in one process"),
    ],
)
def test_ranks_that_cannot_share_memory_have_a_reason(differs: dict[str, Any], reason: str) -> None:
    other = replace(FACTS, pid=2)
    assert rendezvous._obstacle([FACTS, replace(other, **differs)]) == reason
    assert rendezvous._obstacle([FACTS, other]) == ""


def _join(fd: int, nonce: bytes, ranks: int = 2) -> int:
    """The errno with which the segment is refused; 0: it is not."""
    try:
        library.load().join(fd, 0, nonce, (os.getpid(),) * ranks, 0).close()
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.fixture
def segment() -> Iterator[int]:
    """A descriptor of a segment with NONCE."""
    fd = library.load().create(2, 1 << 20, NONCE)
    yield fd
    os.close(fd)


def test_a_segment_with_another_nonce_is_refused_and_its_size_is_sealed(segment: int) -> None:
    assert _join(segment, NONCE) == 0
    assert _join(segment, b"x" * 32) == errno.EPERM
    with pytest.raises(PermissionError):
        os.ftruncate(segment, 0)


def _another(kind: str) -> int:
    """A descriptor of something else than a sealed memfd."""
    if kind == "memfd":
        return os.memfd_create("accel_shm", os.MFD_ALLOW_SEALING)
    if kind == "file":
        with tempfile.TemporaryFile(dir="/var/tmp") as file:  # /tmp may be in memory, where files know seals
            return os.dup(file.fileno())
    if kind == "pipe":
        reading, writing = os.pipe()
        os.close(writing)
        return reading
    return os.open("/dev/zero", os.O_RDWR)


@pytest.mark.parametrize("kind", ["memfd", "file", "pipe", "device"])
def test_what_has_no_seals_is_refused_though_its_header_is_right(segment: int, kind: str) -> None:
    fd = _another(kind)
    try:
        if kind in ("memfd", "file"):
            os.ftruncate(fd, 1 << 20)
            os.pwrite(fd, os.pread(segment, 4096, 0), 0)
        assert _join(fd, NONCE) == errno.EPERM
    finally:
        os.close(fd)


def _planted(nonce: bytes, user: int) -> int:
    """A segment that a process of another user has made, right in every other respect."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            os.setresuid(user, user, user)
            made = library.load().create(2, 1 << 20, nonce)
            socket.send_fds(theirs, [b"x"], [made])
            os.read(theirs.fileno(), 1)  # until the test is done
        finally:
            os._exit(0)
    theirs.close()
    _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    os.waitpid(child, 0)
    return fd


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root, to be another user")
@pytest.mark.parametrize(("user", "error"), [(0, 0), (65534, errno.EPERM)], ids=["own", "another user's"])
def test_a_segment_that_another_user_planted_is_refused_though_the_nonce_is_right(
    user: int, error: int
) -> None:
    library.load()
    fd = _planted(NONCE, user)
    try:
        assert os.fstat(fd).st_uid == user
        assert _join(fd, NONCE) == error
    finally:
        os.close(fd)


def test_a_segment_without_room_for_its_ranks_is_not_made() -> None:
    for ranks, size in ((2, 4096), (0, 1 << 20)):
        with pytest.raises(OSError, match="Invalid argument"):
            library.load().create(ranks, size, bytes(32))


def test_constructing_the_accelerator_registers_the_backend() -> None:
    CPU_Accelerator()
    assert "shm" in dist.Backend.backend_list
