# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks without /dev/shm, in several containers, of several users: shared memory where it is safe, else gloo."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PROGRAM = str(Path(__file__).parent / "ranks/shm_hosts.py")
NOBODY = 65534
#: Guard against hangs.
LIMIT = 120


def _unshares() -> bool:
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    command = ["unshare", "-m", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not _unshares(), reason="not run: needs root, and unshare of util-linux")


@pytest.fixture
def store() -> Iterator[str]:
    """A file that ranks of all users can use."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "store")
        path.touch()
        path.chmod(0o666)
        yield str(path)


def _start(store: str, users: Sequence[int], wraps: Sequence[Sequence[str]]) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [*wrap, sys.executable, PROGRAM, store, str(rank), str(len(users)), str(user)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, (user, wrap) in enumerate(zip(users, wraps, strict=True))
    ]


def _found(ranks: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    found = []
    for rank in ranks:
        try:
            found.append(json.loads(rank.communicate(timeout=LIMIT)[0]))
        finally:
            rank.kill()
    return found


def _run(store: str, users: Sequence[int], *wraps: Sequence[str]) -> list[dict[str, Any]]:
    return _found(_start(store, users, wraps))


NO_DEV_SHM = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"


@pytest.mark.parametrize("change", ["mount -t tmpfs -o size=1m none /dev/shm", NO_DEV_SHM])
def test_a_dev_shm_of_1_mib_or_none_makes_no_difference(store: str, change: str) -> None:
    wrap = ["unshare", "-m", "sh", "-c", f'{change} && exec "$@"', "sh"]
    for report in _run(store, [-1, -1], wrap, wrap):
        assert report == {"reason": "shared memory of 2 processes", "sums": [3.0] * 4, "names": []}


CONTAINER = ("unshare", "-m", "--ipc", "--pid", "--fork", "--mount-proc")


@pytest.mark.parametrize(
    ("user", "wrap", "reason"),
    [
        (-1, CONTAINER, "the ranks are in different containers"),
        (NOBODY, (), "the ranks belong to different users"),
    ],
    ids=["containers", "users"],
)
def test_ranks_that_cannot_share_memory_use_gloo(
    store: str, user: int, wrap: Sequence[str], reason: str
) -> None:
    for report in _run(store, [-1, user], [], wrap):
        assert report["reason"] == reason
        assert report["sums"] == [3.0 + max(user, 0)] * 4


def test_jobs_of_two_users_at_once_share_nothing(store: str, tmp_path: Path) -> None:
    first = _start(str(tmp_path / "store"), [-1, -1], [[], []])
    second = _start(store, [NOBODY, NOBODY], [[], []])
    for reports, total in ((_found(first), 3.0), (_found(second), 3.0 + 2 * NOBODY)):
        for report in reports:
            assert report["reason"] == "shared memory of 2 processes"
            assert report["sums"] == [total] * 4
