# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op file I/O: what `async_io` writes is in the file, what it reads is in the tensor, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("AsyncIOBuilder")]

_DO = "compare it with `accel_host.io`, which serves the op"
_PART = 64 * 1024 + 512  # not a multiple of a block


@pytest.fixture
def handle(accelerator: DeepSpeedAccelerator) -> Any:
    """As DeepSpeed makes it: block size, depth, single submit, overlapped events, threads."""
    return accelerator.create_op_builder("AsyncIOBuilder").load().aio_handle(16 * 1024, 8, False, True, 2)


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, accelerator: DeepSpeedAccelerator) -> torch.device:
    return torch.device(accelerator.device() if request.param == "device" else "cpu")


def _bytes(count: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def _content(file: Path) -> torch.Tensor:
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)


def test_writes_leave_the_rest_of_a_file(handle: Any, place: torch.device, tmp_path: Path) -> None:
    """A write at an offset changes the bytes there; those before and behind it stay, and the file its size."""
    holds, whole = Holds(), _bytes(4 * _PART, 1)
    for name in ("sync_pwrite", "async_pwrite"):
        file, part = tmp_path / name, _bytes(_PART, 2)
        file.write_bytes(whole.numpy().tobytes())
        getattr(handle, name)(part.to(place), str(file), 2 * _PART)
        if name == "async_pwrite":
            holds["wait() counts the write"] = handle.wait() == 1
        wanted = whole.clone()
        wanted[2 * _PART : 3 * _PART] = part
        holds.same(name, _content(file), wanted)
    holds.expect("a write into a file", _DO)


def test_reads_in_flight_each_fill_their_tensor(handle: Any, place: torch.device, tmp_path: Path) -> None:
    """Of several reads that are begun before one is waited for, each fills its own tensor from its own offset."""
    holds, whole, file = Holds(), _bytes(5 * _PART, 3), tmp_path / "file"
    file.write_bytes(whole.numpy().tobytes())
    offsets = [3 * _PART, 0, 512, _PART]
    found = [torch.zeros(_PART, dtype=torch.uint8, device=place) for _ in offsets]
    for tensor, offset in zip(found, offsets, strict=True):
        handle.async_pread(tensor, str(file), offset)
    holds["wait() counts the reads"] = handle.wait() == len(offsets)
    for tensor, offset in zip(found, offsets, strict=True):
        holds.same(f"async_pread at {offset}", tensor, whole[offset : offset + _PART])
        tensor.zero_()
        handle.sync_pread(tensor, str(file), offset)
        holds.same(f"sync_pread at {offset}", tensor, whole[offset : offset + _PART])
    holds["wait() has nothing left"] = handle.wait() == 0
    holds.expect("a read from a file", _DO)


def _fails(handle: Any, begin: Callable[[], Any]) -> bool:
    """Whether a request of the handle ends with an error, or with another number than that of a success."""
    try:
        begun = begin()
        return (isinstance(begun, int) and begun < 0) or handle.wait() != 1
    except Exception:
        return True


def test_requests_that_fail_say_so(handle: Any, tmp_path: Path) -> None:
    """A read of what is not there, and a write into a missing folder, are errors; the next request works."""
    file, holds, buffer = tmp_path / "short", Holds(), torch.zeros(_PART, dtype=torch.uint8)
    file.write_bytes(b"x" * 100)
    missing, nowhere = str(tmp_path / "missing"), str(tmp_path / "folder" / "file")
    holds["a short file"] = _fails(handle, lambda: handle.async_pread(buffer, str(file), 0))
    holds["a missing file"] = _fails(handle, lambda: handle.async_pread(buffer, missing, 0))
    holds["a missing folder"] = _fails(handle, lambda: handle.async_pwrite(buffer, nowhere, 0))
    holds["a request after errors"] = not _fails(handle, lambda: handle.async_pwrite(buffer, missing, 0))
    holds.same("what it wrote", _content(Path(missing)), buffer)
    holds.expect("a request that cannot be done", _DO)
