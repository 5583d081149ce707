# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Who may share memory with whom; everybody else uses gloo, all ranks alike. Nobody else can choose what is shared."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from accel_core import env
from accel_core.processes import Child
from accel_cpu.ccl import communicator
from accel_cpu.ccl import library as oneccl
from accel_cpu.errors import OneCCLFailed, StoreTampered
from accel_cpu.exchange import MOST_BYTES, Exchange
from accel_cpu.shm import library, rendezvous, segment
from accel_cpu.shm.rendezvous import RankFacts
from shared.children import as_user

NOBODY = 65534
SIZE = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root, to be another user")
FACTS = RankFacts(1, "", "a", 1, 0, 0b11, 5, 7)


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


@pytest.fixture
def made() -> Iterator[tuple[int, int]]:
    """Descriptor and nonce of a segment."""
    fd, nonce = segment.create(SIZE)
    yield fd, nonce
    os.close(fd)


def test_a_segment_with_another_nonce_is_refused_and_its_size_is_sealed(made: tuple[int, int]) -> None:
    fd, nonce = made
    assert segment.checked_size(fd, nonce) == SIZE
    with pytest.raises(PermissionError):
        segment.checked_size(fd, nonce ^ 1)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)


def test_small_segments_are_rejected(made: tuple[int, int]) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        library.load().join(made[0], 8192, 0, (os.getpid(),) * 2, 0, 1000)


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
def test_what_has_no_seals_is_refused_though_its_header_is_right(made: tuple[int, int], kind: str) -> None:
    fd = _another(kind)
    try:
        if kind in ("memfd", "file"):
            os.ftruncate(fd, SIZE)
            os.pwrite(fd, os.pread(made[0], 4096, 0), 0)
        with pytest.raises(PermissionError):
            segment.checked_size(fd, made[1])
    finally:
        os.close(fd)


def _planted(user: int) -> tuple[int, int]:
    """Descriptor and nonce of a segment that a process of another user has made, right in every other respect."""
    ours, theirs = socket.socketpair()

    def make() -> None:
        fd, nonce = segment.create(SIZE)
        socket.send_fds(theirs, [str(nonce).encode()], [fd])

    with ours, theirs:
        as_user(user, make)
        nonce, (fd,), _, _ = socket.recv_fds(ours, 100, 1)
    return fd, int(nonce)


@needs_root
@pytest.mark.parametrize("user", [0, NOBODY], ids=["own", "another user's"])
def test_a_segment_that_another_user_planted_is_refused_though_the_nonce_is_right(user: int) -> None:
    fd, nonce = _planted(user)
    try:
        assert os.fstat(fd).st_uid == user
        with nullcontext() if user == 0 else pytest.raises(PermissionError):
            assert segment.checked_size(fd, nonce) == SIZE
    finally:
        os.close(fd)


def test_facts_come_back_as_they_were() -> None:
    assert RankFacts.from_text(FACTS.to_text()) == FACTS
    longest = RankFacts(1, cpus=(1 << 8192) - 1, problem="x" * 2000).to_text()
    assert len(longest) < MOST_BYTES
    assert RankFacts.from_text(longest).cpus.bit_count() == 8192


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 0}, {"pid": 2**22 + 1}, {"pid": "1"}, {"pid": True}, {"fd": "../../etc/passwd"}, {"fd": 2**31},
        {"fd": None}, {"nonce": ""}, {"nonce": 2**256}, {"nonce": -1}, {"cpus": [0]}, {"cpus": 2**8192}, {"cpus": 1.0},
        {"host": "h" * 2000}, {"problem": None}, {"user": 2**32}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_facts_that_no_rank_can_have_written_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        RankFacts.from_text(json.dumps({**json.loads(FACTS.to_text()), **change}))


def test_a_rank_that_sends_nonsense_costs_shared_memory_and_no_more() -> None:
    store = dist.HashStore()
    store.set("facts/0", '{"pid": 1}')
    store.set("joined/0", "")
    reason = "rank 0 wrote what cannot be read: not the facts of a rank"
    assert rendezvous.join(store, 1, 2, 1000)[:2] == (None, reason)


def test_what_another_rank_sends_is_shown_in_short_and_without_commands_for_a_terminal() -> None:
    store = dist.HashStore()
    store.set("facts/0", replace(FACTS, pid=os.getpid() + 1, problem="\x1b]0;x\x07" * 50).to_text())
    store.set("joined/0", "\x1b[2J\n" * 3000)
    _, reason, _ = rendezvous.join(store, 1, 2, 1000)
    assert reason.isprintable()
    assert len(reason) < 1100


def _opened(kind: str, folder: Path) -> int:
    (folder / "file").write_text("private")
    if kind == "pipe":
        os.mkfifo(folder / "pipe")
        return os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    place = {"file": folder / "file", "folder": folder, "device": Path("/dev/null")}[kind]
    return os.open(place, os.O_RDONLY)


@pytest.mark.parametrize("kind", ["file", "pipe", "device", "folder"])
def test_only_memory_is_opened_for_writing(kind: str, tmp_path: Path) -> None:
    fd = _opened(kind, tmp_path)
    try:
        with pytest.raises(PermissionError):
            segment.open_of(os.getpid(), fd)
    finally:
        os.close(fd)


@needs_root
@pytest.mark.parametrize("secret", ["", "s" * 64], ids=["torchrun", "accel launch"])
def test_another_user_who_writes_into_the_store_does_not_choose_what_is_opened(
    secret: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, secret)
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    target = tmp_path / "root"
    target.write_text("root's")
    fd = os.open(target, os.O_RDONLY)  # of a process that root started: anybody can name its descriptors
    modes: list[int] = []
    opens = os.open
    mine = rendezvous._facts(0)
    planted = {
        "a path": json.loads(mine.to_text()) | {"pid": os.getpid(), "fd": f"{fd}/../../../../{target}"},
        "a number": json.loads(mine.to_text()) | {"pid": os.getppid(), "fd": fd},
    }

    def spied(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        modes.extend([flags & os.O_ACCMODE] * (path != os.devnull))  # which starting a process opens
        return opens(path, flags, *args, **kwargs)

    monkeypatch.setattr(segment.os, "open", spied)
    for name, facts in planted.items():

        def attack(name: str = name, facts: Any = facts) -> None:
            theirs = dist.TCPStore("127.0.0.1", store.port, 2, is_master=False)
            theirs.set(f"{name}/facts/0", "0" * len(secret) + json.dumps(facts))
            theirs.set(f"{name}/joined/0", "0" * len(secret))

        as_user(NOBODY, attack)
        prefixed = dist.PrefixStore(name, store)
        if secret:
            with pytest.raises(StoreTampered, match="secret"):
                rendezvous.join(prefixed, 1, 2, 1000)
        else:
            assert rendezvous.join(prefixed, 1, 2, 1000)[0] is None
    os.close(fd)
    assert not {os.O_RDWR, os.O_WRONLY} & set(modes)


@pytest.mark.parametrize("secret", ["", "s" * 64])
def test_each_rank_gets_the_texts_of_all(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, secret)
    store = dist.HashStore()

    def rank(number: int) -> list[list[str]]:
        exchange = Exchange(store, number, 2, "first", "second")
        return [exchange.all_gather(f"{topic} of {number}") for topic in ("first", "second")]

    with ThreadPoolExecutor() as pool:
        got = list(pool.map(rank, range(2), timeout=60))
    assert got == [[["first of 0", "first of 1"], ["second of 0", "second of 1"]]] * 2
    reported = store.get("first/1").decode()
    assert reported.endswith("first of 1")
    assert ("s" * 64) not in reported


def test_a_text_of_another_group_or_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, "s")
    store = dist.HashStore()
    signed = Exchange(store, 0, 2)
    store.set("first/0", signed._code("first", 1, "text") + "text")  # rank 1's, as rank 0's
    with pytest.raises(StoreTampered):
        Exchange(store, 1, 2, "first").all_gather("text")
    # In a second topic, the code of a group in which something else was written before.
    store.set("first/0", signed._code("first", 0, "a") + "a")
    exchange = Exchange(store, 1, 2, "first", "second")
    assert exchange.all_gather("b") == ["a", "b"]
    store.set("second/0", signed._code("second", 0, "") + "")
    with pytest.raises(StoreTampered):
        exchange.all_gather("")


def test_a_rank_that_refuses_does_not_let_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, "s")
    store = dist.HashStore()
    store.set("first/0", "forged")
    with pytest.raises(StoreTampered):
        Exchange(store, 1, 2, "first", "second").all_gather("mine")
    other = Exchange(store, 0, 2, "first", "second")
    assert other.all_gather("theirs") == ["theirs", "mine"]
    with pytest.raises(StoreTampered, match="second of rank 1"):
        other.all_gather("")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * (MOST_BYTES + 1)], ids=["no text", "too long"])
def test_what_is_no_text_of_a_rank_is_refused_without_a_secret_too(data: bytes) -> None:
    store = dist.HashStore()
    store.set("first/0", data)  # type: ignore[arg-type]
    with pytest.raises(StoreTampered):
        Exchange(store, 1, 2, "first").all_gather("")


@pytest.mark.parametrize("identifier", ["", "zz", "00" * 4095, "00" * 4097])
def test_an_identifier_of_oneccl_with_another_length_is_refused(
    identifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oneccl, "load", lambda: None)
    store = dist.HashStore()
    store.set("loaded/0", "")
    store.set("id/0", identifier)
    with pytest.raises(OneCCLFailed, match="identifier"):
        communicator.exchange_id(store, 1, 2)


PROGRAM = str(Path(__file__).parents[1] / "ranks/shm_hosts.py")
#: Guard against hangs.
LIMIT = 120


def _unshares() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    command = ["unshare", "-m", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


in_containers = pytest.mark.skipif(not _unshares(), reason="not run: needs root, and unshare of util-linux")


@pytest.fixture
def store() -> Iterator[str]:
    """A file that ranks of all users can use."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "store")
        path.touch()
        path.chmod(0o666)
        yield str(path)


def _start(store: str, users: Sequence[int], *wraps: Sequence[str]) -> list[Child]:
    return [
        Child([*wrap, sys.executable, PROGRAM, store, str(rank), str(len(users)), str(user)])
        for rank, (user, wrap) in enumerate(zip(users, wraps, strict=True))
    ]


def _found(ranks: list[Child]) -> list[dict[str, Any]]:
    # gloo of torch 2.8 writes a line there, too.
    return [json.loads(rank.wait(LIMIT).stdout.splitlines()[-1]) for rank in ranks]


NO_DEV_SHM = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"


@pytest.mark.sample("*size=1m*")
@in_containers
@pytest.mark.parametrize("change", ["mount -t tmpfs -o size=1m none /dev/shm", NO_DEV_SHM])
def test_a_dev_shm_of_1_mib_or_none_makes_no_difference(store: str, change: str) -> None:
    wrap = ["unshare", "-m", "sh", "-c", f'{change} && exec "$@"', "sh"]
    for report in _found(_start(store, [-1, -1], wrap, wrap)):
        assert report == {"reason": "shared memory of 2 processes", "sums": [3.0] * 4, "names": []}


CONTAINER = ("unshare", "-m", "--ipc", "--pid", "--fork", "--mount-proc")


@pytest.mark.sample("containers")
@in_containers
@pytest.mark.parametrize(
    ("user", "wrap", "reason"),
    [(-1, CONTAINER, "are in different containers"), (NOBODY, (), "belong to different users")],
    ids=["containers", "users"],
)
def test_ranks_without_shared_memory_use_gloo(store: str, user: int, wrap: Any, reason: str) -> None:
    for report in _found(_start(store, [-1, user], [], wrap)):
        assert report["reason"] == f"the ranks {reason}"
        assert report["sums"] == [3.0 + max(user, 0)] * 4


@in_containers
def test_jobs_of_two_users_at_once_share_nothing(store: str, tmp_path: Path) -> None:
    first = _start(str(tmp_path / "store"), [-1, -1], [], [])
    second = _start(store, [NOBODY, NOBODY], [], [])
    for reports, total in ((_found(first), 3.0), (_found(second), 3.0 + 2 * NOBODY)):
        for report in reports:
            assert report["reason"] == "shared memory of 2 processes"
            assert report["sums"] == [total] * 4
