# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builds of stock DeepSpeed ops survive killed processes and respect locks in use."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from accel_testkit import stock_builds

HOLD = """
import sys
from accel_testkit import stock_builds
with stock_builds.{how}:
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return torch's lock of a build, in a folder of this test."""
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    (stock_builds.folder() / "deepspeed_shm_comm").mkdir()
    return stock_builds.folder() / "deepspeed_shm_comm/lock"


def held(how: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(how=how)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_folder_is_private(tmp_path: Path) -> None:
    folder = Path(stock_builds.environment()["TORCH_EXTENSIONS_DIR"])
    assert folder.parent == tmp_path / "cache"
    assert folder.stat().st_mode & 0o077 == 0


def test_lock_of_killed_build_is_removed(lock: Path) -> None:
    starts = []

    def start() -> None:
        starts.append(lock.exists())

    for _ in range(2):
        with stock_builds.started(start):
            assert starts == [False]
    lock.touch()
    with stock_builds.started(start):
        assert starts == [False, False]
    lock.touch()
    with stock_builds.alone():
        assert not lock.exists()


def test_failed_start_is_repeated() -> None:
    def start() -> None:
        raise RuntimeError("no compiler")

    for _ in range(2):
        with pytest.raises(RuntimeError), stock_builds.started(start):
            pass


@pytest.mark.parametrize("how", ["alone()", "started(lambda: None)"])
def test_killed_process_releases_the_folder(how: str) -> None:
    process, entered = held(how), list[bool]()

    def enter() -> None:
        with stock_builds.alone():
            entered.append(True)

    waiting = Thread(target=enter)
    waiting.start()
    waiting.join(0.3)
    assert not entered
    with process:
        process.kill()
    waiting.join(60)
    assert entered


def test_lock_in_use_is_respected(lock: Path) -> None:
    with held("started(lambda: None)") as process:
        lock.touch()  # a rank of that process loads the op
        entered = list[bool]()

        def enter() -> None:
            with stock_builds.started(lambda: None):
                entered.append(lock.exists())

        waiting = Thread(target=enter)
        waiting.start()
        waiting.join(0.3)
        assert lock.exists()
        assert not entered
        lock.unlink()
        waiting.join(60)
        assert entered == [False]
        process.kill()
