# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The launcher's temporary folder: removed at its end, and by the next launcher if it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from accel_core.launch.engine_errors import LogUnwritable
from accel_core.launch.folder import PREFIX, temporary_folder

_KILLED = (
    "import os, signal\nfrom accel_core.launch.folder import temporary_folder\n"
    "with temporary_folder() as folder:\n    (folder / 'hosts').touch()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def kill_one(place: Path) -> Path:
    """The folder that a killed launcher has left."""
    before = set(place.iterdir())
    subprocess.run([sys.executable, "-c", _KILLED], env={**os.environ, "TMPDIR": str(place)}, check=False)
    (left,) = set(place.iterdir()) - before
    assert (left / "hosts").exists()
    return left


def test_what_a_killed_launcher_left_is_removed_by_the_next_and_nothing_else(place: Path) -> None:
    left = kill_one(place)
    with temporary_folder() as living:
        assert not left.exists()
        with temporary_folder() as own:
            assert living.is_dir()
            assert own != living
        assert not own.exists()
    assert list(place.iterdir()) == []


def test_a_folder_without_a_lock_is_being_made_and_stays(place: Path) -> None:
    young = place / f"{PREFIX}young"
    young.mkdir()
    with temporary_folder():
        pass
    assert young.is_dir()


def test_links_are_not_followed(place: Path) -> None:
    left = kill_one(place)
    target = place / "target"
    left.rename(target)
    (place / f"{PREFIX}link").symlink_to(target)
    other = place / f"{PREFIX}other"
    other.mkdir()
    (other / ".lock").symlink_to(target / ".lock")
    with temporary_folder():
        pass
    assert (target / "hosts").exists()
    assert other.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_folder_of_another_user_stays(place: Path) -> None:
    left = kill_one(place)
    os.chown(left, 12345, 12345)
    with temporary_folder():
        pass
    assert left.is_dir()


def test_a_folder_that_others_can_replace_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    place.chmod(0o777)
    with temporary_folder() as folder:
        assert folder.parent != place
    place.chmod(0o1777)
    with temporary_folder() as folder:
        assert folder.parent == place


def test_without_a_safe_folder_the_error_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o777)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(LogUnwritable, match="safe from other users"), temporary_folder():
        pass
