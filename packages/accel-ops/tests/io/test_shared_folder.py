# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files in a folder in which other users may lay links: what another user has laid is not written to."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from accel_ops.io.builder import AsyncIOBuilder

NOBODY = 65534


def written(path: Path) -> None:
    AsyncIOBuilder().load().aio_handle().sync_pwrite(torch.ones(1000), path)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which everybody may do everything, with a file that is to be kept."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        (Path(made) / "target").write_text("kept")
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root, to be another user")
def test_a_link_of_another_user_is_not_written_to(folder):
    (folder / "file").symlink_to("target")
    os.lchown(folder / "file", NOBODY, NOBODY)
    (folder / "chain").symlink_to("file")
    for name in ("file", "chain"):
        with pytest.raises(PermissionError, match="link of another user"):
            written(folder / name)
    assert (folder / "target").read_text() == "kept"
    os.chown(folder, NOBODY, NOBODY)  # who may lay links in a folder of his own, as for the kernel
    written(folder / "file")
    assert (folder / "target").stat().st_size == 4000


@pytest.mark.parametrize("when", ["islink", "readlink"])
def test_a_link_that_is_exchanged_meanwhile_is_not_followed(folder, monkeypatch, when):
    path = folder / "file"
    path.symlink_to("own")
    where = os.path if when == "islink" else os
    stock = getattr(where, when)

    def exchanged(asked):
        if os.fspath(asked) != str(path):
            return stock(asked)
        if when == "islink":
            path.unlink()
        answer = stock(asked)
        path.unlink(missing_ok=True)
        path.symlink_to("target")
        return answer

    monkeypatch.setattr(where, when, exchanged)
    with contextlib.suppress(OSError):
        written(path)
    monkeypatch.undo()
    assert (folder / "target").read_text() == "kept"


def test_a_link_of_ones_own_is_followed(folder):
    (folder / "link").symlink_to("target")
    written(folder / "link")
    assert (folder / "target").stat().st_size == 4000
    (folder / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        written(folder / "loop")
