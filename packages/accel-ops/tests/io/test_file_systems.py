# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Round trips on other file systems, which root mounts for the test: each has direct I/O of its own kind, or none."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import round_trips

#: Name: the program that makes one in an image, and its options. Without a program the system needs no image.
_FILE_SYSTEMS = {
    "tmpfs": (),
    "overlay": (),
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "FUSE": ("mkfs.ext4", "-q", "-F"),  # the same image, by a program instead of the kernel
}
_IMAGE = 600 << 20


def mount_command(name: str, folder: Path, target: Path) -> list[str]:
    """The command that mounts it; skips the test where a program is missing."""
    make = _FILE_SYSTEMS[name]
    programs = [*make[:1], *(["fuse2fs"] if name == "FUSE" else [])]
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not run: program {' and '.join(missing)}")
    if name == "tmpfs":
        return ["mount", "-t", "tmpfs", "-o", "size=400m", "none", str(target)]
    if name == "overlay":
        layers = [folder / layer for layer in ("lower", "upper", "work")]
        for layer in layers:
            layer.mkdir()
        options = ",".join(f"{layer.name}dir={layer}" for layer in layers)
        return ["mount", "-t", "overlay", "-o", options, "none", str(target)]
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(_IMAGE)
    subprocess.run([*make, str(image)], check=True, capture_output=True)
    return (
        ["fuse2fs", str(image), str(target)]
        if name == "FUSE"
        else ["mount", "-o", "loop", str(image), str(target)]
    )


@pytest.fixture(params=_FILE_SYSTEMS)
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on each file system."""
    if os.geteuid() != 0:
        pytest.skip("not run: mounting a file system needs root")
    target = tmp_path / "mounted"
    target.mkdir()
    done = subprocess.run(
        mount_command(request.param, tmp_path, target), capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"not run: {request.param} cannot be mounted here: {done.stderr.strip()}")
    yield target
    subprocess.run(["umount", str(target)], check=True)


@pytest.mark.parametrize(
    ("count", "most"), [(24, 1 << 20), pytest.param(600, 16 << 20, marks=pytest.mark.slow)]
)
def test_requests_are_byte_equal(mounted: Path, engine: str, count: int, most: int) -> None:
    round_trips(mounted / "file", engine, 3, count // 3, most)
