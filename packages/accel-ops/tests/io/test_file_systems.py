# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Round trips on other file systems, which root mounts for the test: each has direct I/O of its own kind, or none."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from accel_ops.io.engines import EngineOptions
from accel_ops.io.session import Session
from accel_ops.pinned_memory import MEMORY

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
RoundTrip = Callable[[Session, Path, random.Random, int], None]


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


def trips(round_trip: RoundTrip, folder: Path, engine: str, count: int, most: int) -> None:
    """Round trips with engines of several options."""
    draw = random.Random(f"{engine}{count}")
    for _ in range(3):
        options = EngineOptions(
            draw.choice((4096, 50000, 1 << 20)), draw.choice((1, 3, 32)), draw.choice((1, 3))
        )
        session = Session(options, engine)
        try:
            for _ in range(count // 3):
                round_trip(session, folder / "file", draw, most)
        finally:
            session.close()


@pytest.mark.parametrize(
    ("count", "most"), [(24, 1 << 20), pytest.param(600, 16 << 20, marks=pytest.mark.slow)]
)
def test_requests_are_byte_equal(
    mounted: Path, engine: str, round_trip: RoundTrip, count: int, most: int
) -> None:
    trips(round_trip, mounted, engine, count, most)


_MOST = 64 << 20
_TYPES = (torch.uint8, torch.int16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


class Twin:
    """A file beside what it has to contain; each request is on an engine, of a type, size and alignment at random."""

    def __init__(self, path: Path, draw: random.Random, sessions: list[Session]) -> None:
        self.path, self.draw, self.sessions = path, draw, sessions
        self.expected = torch.zeros(2 * _MOST, dtype=torch.uint8)
        self.size = 0
        self.noise = torch.frombuffer(bytearray(draw.randbytes(_MOST + 4096)), dtype=torch.uint8)
        path.touch()

    def request(self) -> None:
        """One request, whose result has to be byte-equal."""
        if self.draw.random() < 0.01:
            self.shorten(self.draw.choice((0, self.draw.randrange(self.size + 1))))
        if self.draw.random() < 0.5:
            self.write()
        else:
            self.read()

    def shorten(self, size: int) -> None:
        """What is written behind it extends the file."""
        os.truncate(self.path, size)
        self.expected[size : self.size] = 0
        self.size = size

    def write(self) -> None:
        """Write, and compare what a plain read finds, with a page on either side."""
        tensor = self.memory(self.drawn(_MOST))
        data, offset = tensor.view(torch.uint8), min(self.drawn(_MOST), _MOST)
        shift = self.draw.randrange(4096)
        data.copy_(self.noise[shift : shift + data.numel()])
        self.session().submit(tensor, self.path, write=True, offset=offset).wait()
        self.expected[offset : offset + data.numel()] = data
        if data.numel():
            self.size = max(self.size, offset + data.numel())
        self.compare(max(0, offset - 4096), min(self.size, offset + data.numel() + 4096))

    def read(self) -> None:
        """Read, and compare."""
        offset = min(self.drawn(_MOST), self.size)
        tensor = self.memory(min(self.drawn(_MOST), self.size - offset))
        found = tensor.view(torch.uint8)
        self.session().submit(tensor, self.path, write=False, offset=offset).wait()
        assert torch.equal(found, self.expected[offset : offset + found.numel()])

    def compare(self, begin: int, end: int) -> None:
        """The file's bytes are those expected, and it ends where it has to."""
        assert self.path.stat().st_size == self.size
        with self.path.open("rb", buffering=0) as file:
            file.seek(begin)
            found = bytearray(max(0, end - begin))
            assert file.readinto(found) == len(found)
        assert found == self.expected[begin:end].numpy().tobytes()

    def drawn(self, most: int) -> int:
        """A size or an offset: now and then any, mostly small, often at an edge."""
        kind = self.draw.random()
        if kind < 0.02:
            return self.draw.randrange(most + 1)
        if kind < 0.3:
            return self.draw.choice((0, 1, 511, 512, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1))
        return int(2 ** self.draw.uniform(0, 21))

    def memory(self, size: int) -> torch.Tensor:
        """A tensor of at most so many bytes: page-locked or not, at an address of any alignment its type allows."""
        dtype = self.draw.choice(_TYPES)
        shift = self.draw.choice((0, 0, 1, 8, 64, 100, 512)) // dtype.itemsize * dtype.itemsize
        size = size // dtype.itemsize * dtype.itemsize
        locked = self.draw.random() < 0.3
        whole = (
            MEMORY.allocate(size + shift, torch.uint8)
            if locked
            else torch.empty(size + shift, dtype=torch.uint8)
        )
        return whole[shift:].view(dtype)

    def session(self) -> Session:
        """Of any engine."""
        return self.draw.choice(self.sessions)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_requests_of_up_to_64_mib_are_byte_equal(mounted: Path) -> None:
    options = (EngineOptions(1 << 20, 32, 1), EngineOptions(50000, 3, 3), EngineOptions(4096, 8, 2))
    sessions = [Session(each, engine) for each in options for engine in ("uring", "threads", "python")]
    try:
        twin = Twin(mounted / "file", random.Random(15), sessions)
        for _ in range(10_000):
            twin.request()
        twin.compare(0, twin.size)
    finally:
        for session in sessions:
            session.close()
