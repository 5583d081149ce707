# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What ranks do with a store into which somebody else writes."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from accel_core import env
from accel_cpu.ccl import communicator
from accel_cpu.ccl import library as oneccl
from accel_cpu.errors import OneCCLFailed, StoreTampered
from accel_cpu.exchange import MOST_BYTES, Exchange
from accel_cpu.shm import library, rendezvous
from accel_cpu.shm.rendezvous import Facts
from shared.children import as_user

FACTS = Facts(1, "", "a", 1, 0, (0, 1), 5, b"n" * library.NONCE)
NOBODY = 65534


def test_facts_come_back_as_they_were() -> None:
    assert Facts.from_text(FACTS.to_text()) == FACTS
    longest = Facts(1, cpus=tuple(range(8192)), problem="x" * 2000).to_text()
    assert len(longest) < MOST_BYTES
    assert len(Facts.from_text(longest).cpus) == 8192


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 0}, {"pid": -1}, {"pid": 2**22 + 1}, {"pid": "1"}, {"pid": True}, {"pid": 1.0},
        {"fd": "../../etc/passwd"}, {"fd": "0/../../../etc/shadow"}, {"fd": 2**31}, {"fd": -2}, {"fd": None},
        {"nonce": ""}, {"nonce": "00"}, {"nonce": "00" * 31}, {"nonce": "00" * 33}, {"nonce": "zz" * 32},
        {"nonce": 7}, {"cpus": [-1]}, {"cpus": ["0"]}, {"cpus": 1}, {"cpus": [0] * 9000}, {"cpus": [8192]},
        {"cpus": {"0": 1}}, {"host": 1}, {"host": "h" * 2000}, {"problem": None}, {"problem": "p" * 2000},
        {"user": -1}, {"user": 2**32}, {"processes": "x"}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_facts_that_no_rank_can_have_written_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Facts.from_text(json.dumps({**json.loads(FACTS.to_text()), **change}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000, "NaN", "1" * 100_000], ids=len)
def test_what_is_no_facts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Facts.from_text(text)


def test_a_rank_that_tells_nonsense_costs_shared_memory_and_no_more() -> None:
    store = dist.HashStore()
    store.set("facts/0", '{"pid": 1}')
    store.set("joined/0", "")
    reason = "rank 0 wrote what cannot be read: not the facts of a rank"
    assert rendezvous.join(store, 1, 2)[:2] == (None, reason)


def test_what_another_rank_tells_is_shown_in_short_and_without_commands_for_a_terminal() -> None:
    store = dist.HashStore()
    store.set("facts/0", replace(FACTS, pid=os.getpid() + 1, problem="\x1b]0;x\x07" * 50).to_text())
    store.set("joined/0", "\x1b[2J\n" * 10_000)
    _, reason, _ = rendezvous.join(store, 1, 2)
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
            rendezvous._open(os.getpid(), fd)
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------------------- another user


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root, to be another user")
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
    mine = rendezvous._facts(None)
    planted = {
        "a path": json.loads(mine.to_text()) | {"pid": os.getpid(), "fd": f"{fd}/../../../../{target}"},
        "a number": json.loads(mine.to_text()) | {"pid": os.getppid(), "fd": fd},
    }

    def spied(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        modes.append(flags & os.O_ACCMODE)
        return opens(path, flags, *args, **kwargs)

    monkeypatch.setattr(rendezvous.os, "open", spied)
    for name, facts in planted.items():

        def attack(name: str = name, facts: Any = facts) -> None:
            theirs = dist.TCPStore("127.0.0.1", store.port, 2, is_master=False)
            theirs.set(f"{name}/facts/0", "0" * len(secret) + json.dumps(facts))
            theirs.set(f"{name}/joined/0", "0" * len(secret))

        as_user(NOBODY, attack)
        prefixed = dist.PrefixStore(name, store)
        if secret:
            with pytest.raises(StoreTampered, match="secret"):
                rendezvous.join(prefixed, 1, 2)
        else:
            assert rendezvous.join(prefixed, 1, 2)[0] is None
    os.close(fd)
    assert not {os.O_RDWR, os.O_WRONLY} & set(modes)


# ------------------------------------------------------------------------------------------------- secret


@pytest.mark.parametrize("secret", ["", "s" * 64])
def test_ranks_get_what_each_told(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, secret)
    store = dist.HashStore()
    got: list[Any] = [None, None]

    def rank(number: int) -> None:
        exchange = Exchange(store, number, 2, "first", "second")
        got[number] = [exchange.tell(f"{topic} of {number}") for topic in ("first", "second")]

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
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
        Exchange(store, 1, 2, "first").tell("text")
    # In a second topic, the code of a group in which something else was written before.
    store.set("first/0", signed._code("first", 0, "a") + "a")
    exchange = Exchange(store, 1, 2, "first", "second")
    assert exchange.tell("b") == ["a", "b"]
    store.set("second/0", signed._code("second", 0, "") + "")
    with pytest.raises(StoreTampered):
        exchange.tell("")


def test_a_rank_that_refuses_does_not_let_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.JOB_SECRET.name, "s")
    store = dist.HashStore()
    store.set("first/0", "forged")
    with pytest.raises(StoreTampered):
        Exchange(store, 1, 2, "first", "second").tell("mine")
    other = Exchange(store, 0, 2, "first", "second")
    assert other.tell("theirs") == ["theirs", "mine"]
    with pytest.raises(StoreTampered, match="second of rank 1"):
        other.tell("")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * (MOST_BYTES + 1)], ids=["no text", "too long"])
def test_what_is_no_text_of_a_rank_is_refused_without_a_secret_too(data: bytes) -> None:
    store = dist.HashStore()
    store.set("first/0", data)  # type: ignore[arg-type]
    with pytest.raises(StoreTampered):
        Exchange(store, 1, 2, "first").tell("")


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
