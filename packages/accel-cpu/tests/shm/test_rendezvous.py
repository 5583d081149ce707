# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Who may share memory with whom; everybody else uses gloo, all ranks alike."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from typing import Any

import pytest
import shm_calls
import shm_jobs as jobs
import torch.distributed as dist

from accel_cpu import CPU_Accelerator
from accel_cpu.shm import library, rendezvous

FACTS: dict[str, Any] = {"pid": 1, "problem": "", "host": "a", "processes": 1, "user": 0, "cpus": [0]}


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
    assert rendezvous._obstacle([FACTS, FACTS | {"pid": 2} | differs]) == reason
    assert rendezvous._obstacle([FACTS, FACTS | {"pid": 2}]) == ""


def test_without_shared_memory_gloo_does_the_same() -> None:
    for report in jobs.run(shm_calls.without_memory, 2):
        assert not report.error, report.error
        assert report.value == "rank 1: planted"


def _join(fd: int, nonce: bytes, ranks: int = 2) -> int:
    error = ctypes.c_int32(0)
    pids = (ctypes.c_int32 * ranks)(os.getpid(), os.getpid())
    handle = library.load().accel_shm_join(fd, 0, ranks, nonce, pids, 0, ctypes.byref(error))
    if handle:
        library.load().accel_shm_leave(handle)
    return 0 if handle else error.value


def test_a_segment_with_another_nonce_or_of_another_kind_is_refused() -> None:
    nonce = b"\0\1" * 16
    fd = library.load().accel_shm_create(2, 1 << 20, nonce)
    plain = os.memfd_create("accel_shm")
    try:
        assert _join(fd, nonce) == 0
        assert _join(fd, b"x" * 32) != 0
        os.ftruncate(plain, 1 << 20)
        os.pwrite(plain, os.pread(fd, 4096, 0), 0)
        assert _join(plain, nonce) != 0, "its size is not sealed"
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)
        os.close(plain)


def _planted(nonce: bytes, user: int) -> int:
    """A segment that a process of another user has made, right in every other respect."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            os.setresuid(user, user, user)
            made = library.load().accel_shm_create(2, 1 << 20, nonce)
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
    nonce = b"\0\1" * 16
    library.load()
    fd = _planted(nonce, user)
    try:
        assert os.fstat(fd).st_uid == user
        assert _join(fd, nonce) == error
    finally:
        os.close(fd)


def test_a_segment_without_room_for_its_ranks_is_not_made() -> None:
    assert library.load().accel_shm_create(2, 4096, bytes(32)) < 0
    assert library.load().accel_shm_create(0, 1 << 20, bytes(32)) < 0


def test_constructing_the_accelerator_registers_the_backend() -> None:
    CPU_Accelerator()
    assert "shm" in dist.Backend.backend_list


def test_synchronous_calls_start_no_thread() -> None:
    for report in jobs.run(shm_calls.threads, 2):
        assert report.value == []


def test_deepspeeds_op_sums_over_all_ranks_and_leaves_groups_to_torch() -> None:
    for report in jobs.run(shm_calls.inference, 3):
        assert not report.error, report.error
        assert report.value == [[6.0, 6.0], [6.0, 6.0], 0]
