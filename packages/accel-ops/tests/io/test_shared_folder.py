# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What another user may have laid into the folder of a checkpoint: nothing of it is followed, shown or taken over."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from accel_ops import io
from accel_ops.io import checkpoint, state
from accel_ops.io.files import Replacement, open_file
from shared.children import as_user

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root, to be another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which everybody may do everything."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The umask of most users."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def lay(path: Path, how: str) -> None:
    """Lay something into the folder that another user owns."""
    if how == "a link":
        path.symlink_to("target")
    elif how == "a folder":
        path.mkdir()
    elif how == "a pipe":
        os.mkfifo(path)
    elif how == "a second name":
        os.link(path.parent / "target", path)
    else:
        path.write_text("theirs")
        path.chmod(0o600)
    if os.geteuid() == 0 and how != "a second name":
        os.lchown(path, NOBODY, NOBODY)


def saved(path: Path, text: bytes = b"new") -> None:
    with Replacement(path) as new:
        os.write(new.fd, text)
        new.replace()


# ---------------------------------------------------------------------------------------------- the mode


@pytest.mark.parametrize("former", [0o600, 0o640, 0o664, 0o6755])
def test_a_file_is_private_until_it_has_the_name_and_the_mode_of_the_former_one_without_set_id(
    folder: Path, former: int
) -> None:
    (folder / "file").touch()
    (folder / "file").chmod(former)
    with Replacement(folder / "file") as new:
        assert mode(new.name) == 0o600
        new.replace()
    assert mode(folder / "file") == former & 0o777


@pytest.mark.parametrize(("mask", "wanted"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_is_private_until_it_is_complete_and_then_as_the_umask_has_it(
    folder: Path, mask: int, wanted: int
) -> None:
    os.umask(mask)  # the fixture takes it back
    seen = []
    io.save(
        {"a": torch.ones(9)}, folder / "file", progress=lambda *_: seen.append(mode(folder / ".file.part"))
    )
    assert set(seen) == {0o600}
    assert mode(folder / "file") == wanted
    assert os.umask(mask) == mask


@needs_root
@pytest.mark.parametrize(
    ("theirs", "wanted"), [(0o4755, 0o644), (0o2777, 0o644), (0o666, 0o644), (0o600, 0o600), (0o4000, 0)]
)
def test_a_file_of_another_owner_passes_on_no_right_that_a_new_one_would_not_give(
    folder: Path, theirs: int, wanted: int
) -> None:
    path = folder / "file"
    path.touch()
    os.chown(path, NOBODY, NOBODY)
    path.chmod(theirs)
    saved(path)
    assert mode(path) == wanted
    assert path.stat().st_uid == 0


# ------------------------------------------------------------------------------------- the temporary name

LAID = ["a file", "a link", "a folder", "a pipe", "a second name"]


@pytest.mark.parametrize("how", LAID)
def test_what_has_the_temporary_name_does_not_prevent_a_save(folder: Path, how: str) -> None:
    (folder / "target").write_text("kept")
    if how == "a file" and os.geteuid() != 0:
        pytest.skip("not run: needs root, to be another user")
    lay(folder / ".file.part", how)
    io.save({"a": torch.ones(3)}, folder / "file")
    assert torch.equal(io.load(folder / "file")["a"], torch.ones(3))
    assert (folder / "target").read_text() == "kept"
    assert sorted(os.listdir(folder)) == [".file.part", "file", "target"]


@needs_root
def test_a_file_that_cannot_be_opened_does_not_prevent_a_save_of_another_user(folder: Path) -> None:
    (folder / ".file.part").write_text("root's")
    (folder / ".file.part").chmod(0o600)
    as_user(NOBODY, lambda: saved(folder / "file"))
    assert (folder / "file").read_text() == "new"
    assert (folder / ".file.part").read_text() == "root's"


def test_a_temporary_file_that_others_can_have_opened_is_not_used_again(folder: Path) -> None:
    (folder / ".file.part").touch(0o644)
    with open(folder / ".file.part", "rb") as reader:
        saved(folder / "file", b"private")
        assert reader.read() == b""
    assert os.listdir(folder) == ["file"]


@pytest.mark.parametrize("how", ["a file", "a link"])
def test_what_gets_the_temporary_name_meanwhile_is_not_written_to_and_replaces_nothing(
    folder: Path, how: str
) -> None:
    (folder / "target").write_text("kept")
    (folder / "file").write_text("former")
    with Replacement(folder / "file") as new:
        os.unlink(new.name)
        lay(Path(new.name), how)
        with state._opened(new.fd, write=True) as (file, _):
            file.write(torch.zeros(100))
        with pytest.raises(FileNotFoundError, match="removed"):
            new.replace()
    assert (folder / "target").read_text() == "kept"
    assert (folder / "file").read_text() == "former"


def test_the_temporary_file_is_transferred_as_one_with_a_name_is(folder: Path) -> None:
    with Replacement(folder / "file") as new:
        opened = [
            open_file(name, write=True, size=1 << 20, native=True, own=True) for name in (new.fd, new.name)
        ]
        assert opened[0].direct == opened[1].direct
        for each in opened:
            each.close()


# -------------------------------------------------------------------------------------------------- links


@needs_root
def test_a_link_of_another_user_is_neither_replaced_nor_written_to(folder: Path) -> None:
    (folder / "target").write_text("kept")
    lay(folder / "file", "a link")
    (folder / "chain").symlink_to("file")
    for name in ("file", "chain"):
        with pytest.raises(PermissionError, match="link of another user"):
            io.save({}, folder / name)
        with pytest.raises(PermissionError, match="link of another user"):
            io.write(folder / name, torch.ones(1000))
    assert (folder / "target").read_text() == "kept"
    os.chown(folder, NOBODY, NOBODY)  # who may lay links in a folder of his own, as for the kernel
    io.save({}, folder / "file")
    assert io.load(folder / "target") == {}
    assert (folder / "file").is_symlink()


@pytest.mark.parametrize("when", ["islink", "readlink"])
def test_a_link_that_is_laid_meanwhile_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    (folder / "target").write_text("kept")
    path = folder / "file"
    if when == "readlink":
        path.symlink_to("own")
    where = os.path if when == "islink" else os
    stock = getattr(where, when)

    def exchanged(asked: str) -> object:
        answer = stock(asked)
        if os.fspath(asked) == str(path):
            path.unlink(missing_ok=True)
            path.symlink_to("target")
        return answer

    monkeypatch.setattr(where, when, exchanged)
    with contextlib.suppress(PermissionError):
        saved(path)
    monkeypatch.undo()
    assert (folder / "target").read_text() == "kept"


def test_the_mode_of_a_file_with_a_second_name_is_not_passed_on(folder: Path) -> None:
    (folder / "open to all").touch()
    (folder / "open to all").chmod(0o666)
    os.link(folder / "open to all", folder / "file")
    saved(folder / "file")
    assert mode(folder / "file") == 0o644


def test_a_link_of_ones_own_is_followed(folder: Path) -> None:
    (folder / "link").symlink_to("target")
    io.write(folder / "link", torch.ones(1000))
    assert (folder / "target").stat().st_size == 4000
    io.save({}, folder / "link")
    assert io.load(folder / "target") == {}
    (folder / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        io.save({}, folder / "loop")


# ------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("how", ["a file", "a link", "a pipe", "a second name"])
def test_a_stream_makes_a_file_of_its_own(folder: Path, how: str) -> None:
    (folder / "target").write_text("kept")
    lay(folder / "file", how)
    with checkpoint.writing(folder / "file", store=False) as file:
        file.write(b"new")
    assert (folder / "file").read_text() == "new"
    assert (folder / "target").read_text() == "kept"
    assert (folder / "file").stat().st_uid == os.geteuid()


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_is_saved_beside_links_and_pipes_with_its_temporary_name(folder: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint", reason="not run: torch without distributed")
    (folder / "target").write_text("kept")
    lay(folder / ".metadata.tmp", "a link")
    lay(folder / "other.metadata", "a pipe")
    dcp.save({"a": torch.ones(3)}, storage_writer=checkpoint.CheckpointWriter(folder), no_dist=True)
    assert (folder / "target").read_text() == "kept"
    found = {"a": torch.zeros(3)}
    dcp.load(found, storage_reader=checkpoint.CheckpointReader(folder), no_dist=True)
    assert torch.equal(found["a"], torch.ones(3))
