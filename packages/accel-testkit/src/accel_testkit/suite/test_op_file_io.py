# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op file I/O: what `async_io` writes is in the file, what it reads is in the tensor, and nothing else is touched.

Also of tensors with strides or without elements, with transfers that are compared, and where one request fails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops.calls import strided
from accel_testkit.suite.ops.spec import Numbers

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("AsyncIOBuilder")]

_DO = "compare it with `accel_ops.io`, which serves the op"
_PART = 64 * 1024 + 512  # not a multiple of a block
#: Numbers of a request that takes a while.
_LONG = 1 << 20
#: Requests of a handle for a tensor, a file and an offset: true where each returns what DeepSpeed asserts.
_WRITES: dict[str, Callable[..., bool]] = {
    "sync_pwrite": lambda handle, *request: handle.sync_pwrite(*request) == 1,
    "async_pwrite": lambda handle, *request: handle.async_pwrite(*request) == 0 and handle.wait() == 1,
    "write": lambda handle, tensor, file, at: handle.write(tensor, file, False, at) == 0,
    "write, compared": lambda handle, tensor, file, at: handle.write(tensor, file, True, at) == 0,
}
_READS: dict[str, Callable[..., bool]] = {
    "sync_pread": lambda handle, *request: handle.sync_pread(*request) == 1,
    "async_pread": lambda handle, *request: handle.async_pread(*request) == 0 and handle.wait() == 1,
    "read": lambda handle, tensor, file, at: handle.read(tensor, file, False, at) == 0,
    "read, compared": lambda handle, tensor, file, at: handle.read(tensor, file, True, at) == 0,
    "pread, compared": lambda handle, tensor, file, at: (
        handle.pread(tensor, file, True, True, at) == 0 and handle.wait() == 1
    ),
}


@pytest.fixture
def handle(op: Any) -> Any:
    """As DeepSpeed makes it: block size, depth, single submit, overlapped events, threads."""
    return op.aio_handle(16 * 1024, 8, False, True, 2)


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, device: torch.device) -> torch.device:
    return device if request.param == "device" else torch.device("cpu")


@pytest.fixture
def places(device: torch.device) -> list[torch.device]:
    """The host and the device, which may be one."""
    return [*dict.fromkeys((torch.device("cpu"), device))]


def _bytes(count: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def _content(file: Path) -> torch.Tensor:
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)


def _done(call: Callable[..., Any], *arguments: Any) -> bool:
    """False if a request ends with an error, or with another number than that of a success."""
    try:
        return bool(call(*arguments))
    except Exception:
        return False


def test_writes_leave_the_rest_of_a_file(handle: Any, place: torch.device, tmp_path: Path) -> None:
    """A write at an offset changes the bytes there; those before and behind it stay, and the file its size."""
    holds, whole, part, file = Holds(), _bytes(4 * _PART, 1), _bytes(_PART, 2), tmp_path / "file"
    for name, call in _WRITES.items():
        for offset in (2 * _PART, 36, 0):
            file.write_bytes(whole.numpy().tobytes())
            holds[f"{name} at {offset} is done"] = call(handle, part.to(place), str(file), offset)
            wanted = whole.clone()
            wanted[offset : offset + _PART] = part
            holds.same(f"{name} at {offset}", _content(file), wanted)
    holds.expect("a write into a file", _DO)


def test_reads_in_flight_each_fill_their_tensor(handle: Any, place: torch.device, tmp_path: Path) -> None:
    """Of several reads that are begun before one is waited for, each fills its own tensor from its own offset."""
    holds, whole, file = Holds(), _bytes(5 * _PART, 3), tmp_path / "file"
    file.write_bytes(whole.numpy().tobytes())
    offsets = [3 * _PART, 0, 36, _PART]
    found = [torch.zeros(_PART, dtype=torch.uint8, device=place) for _ in offsets]
    for tensor, offset in zip(found, offsets, strict=True):
        handle.async_pread(tensor, str(file), offset)
    holds["wait() counts the reads"] = handle.wait() == len(offsets)
    for tensor, offset in zip(found, offsets, strict=True):
        wanted = whole[offset : offset + _PART]
        holds.same(f"reads in flight: at {offset}", tensor, wanted)
        for name, call in _READS.items():
            tensor.zero_()
            holds[f"{name} at {offset} is done"] = call(handle, tensor, str(file), offset)
            holds.same(f"{name} at {offset}", tensor, wanted)
    holds["wait() has nothing left"] = handle.wait() == 0
    holds.expect("a read from a file", _DO)


def test_requests_that_fail_say_so(places: list[torch.device], handle: Any, tmp_path: Path) -> None:
    """A read of what is not there, and a write into a missing folder, are errors; the next request works.

    Where one of several requests fails, `wait()` has waited for the others too, and leaves none behind.
    """
    file, missing, folder = (str(tmp_path / name) for name in ("file", "missing", "folder/file"))
    numbers, holds = Numbers(torch.float32).normal(_LONG).float(), Holds()
    Path(file).write_bytes(numbers.numpy().tobytes())
    for device in places:
        buffers = [torch.zeros(_LONG + (not number), device=device) for number in range(4)]
        for name, call in _READS.items():
            for path in (file, missing):
                holds[f"{name} of a {path} file"] = not _done(call, handle, buffers[0], path, 0)
        for name, call in _WRITES.items():
            holds[f"{name} into a missing folder"] = not _done(call, handle, buffers[0], folder, 0)
        if _done(lambda: handle.async_pread(buffers[0], missing) == 0):  # noqa: B023
            for buffer in buffers[1:]:
                handle.async_pread(buffer, file)
            holds[f"wait() raises the error on {device}"] = not _done(lambda: handle.wait() == len(buffers))  # noqa: B023
            for number, buffer in enumerate([buffer.clone() for buffer in buffers[1:]]):
                holds.same(f"request {number} behind the error, on {device}", buffer, numbers)
            holds[f"no request is left on {device}"] = handle.wait() == 0
        holds[f"a request after errors on {device}"] = _done(
            _READS["async_pread"], handle, buffers[1], file, 0
        )
    holds.expect("a request that cannot be done", _DO)


def test_handle_tells_what_it_was_given(op: Any) -> None:
    """Block size, depth, flags and threads are those given: DeepSpeed sizes its buffers by them."""
    holds = Holds()
    for given in ((16 * 1024, 8, False, True, 2), (1 << 20, 32, True, False, 1)):
        handle = op.aio_handle(*given)
        found = (
            handle.get_block_size(), handle.get_queue_depth(), handle.get_single_submit(),
            handle.get_overlap_events(), handle.get_intra_op_parallelism(),
        )  # fmt: skip
        holds[f"{given}, found {found}"] = found == given
        alignment = getattr(handle, "get_alignment", lambda: 512 * given[4])()  # noqa: B023
        holds[f"whole sectors for {given[4]} threads, found {alignment}"] = alignment % (512 * given[4]) == 0
    holds.expect("aio_handle", _DO)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32], ids=["uint8", "bf16", "fp32"])
def test_locked_tensors_can_be_transferred(handle: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    """`new_cpu_locked_tensor` gives a host tensor of size and type; it is known until it is freed, and is written."""
    file, holds = tmp_path / "file", Holds()
    block = handle.new_cpu_locked_tensor(4096, torch.empty(0, dtype=dtype))
    found = (tuple(block.shape), block.dtype, block.device.type)
    holds[f"size, type and place, found {found}"] = found == ((4096,), dtype, "cpu")
    wanted = _bytes(4096, 4).to(dtype)
    block.copy_(wanted)
    handle.sync_pwrite(block, str(file))
    holds.same("what it wrote", _content(file), wanted.view(torch.uint8))
    block.zero_()
    handle.sync_pread(block, str(file))
    holds.same("what it read", block, wanted)
    holds["it is freed once"] = handle.free_cpu_locked_tensor(block) is True
    holds.expect("a locked tensor of aio_handle", _DO)


def test_functions_without_a_handle_transfer(op: Any, place: torch.device, tmp_path: Path) -> None:
    """`aio_write`, `aio_read` and `deepspeed_memcpy` move all bytes; tensors of other sizes are refused."""
    holds, file = Holds(), tmp_path / "file"
    settings, wanted = (16 * 1024, 8, False, True), _bytes(_PART, 5)
    op.aio_write(wanted.to(place), str(file), *settings, False)
    holds.same("aio_write", _content(file), wanted)
    found = torch.zeros(_PART, dtype=torch.uint8, device=place)
    op.aio_read(found, str(file), *settings, False)
    holds.same("aio_read", found, wanted)
    if place.type == "cpu":
        for shape in ((_PART,), (8, _PART // 8)):
            copy = torch.zeros(shape, dtype=torch.uint8)
            op.deepspeed_memcpy(copy, wanted)
            holds.same(f"deepspeed_memcpy to {shape}", copy.view(-1), wanted)
        half = torch.zeros(_PART // 2, dtype=torch.uint8)
        holds.raises(Exception, "deepspeed_memcpy of too many", lambda: op.deepspeed_memcpy(half, wanted))
        holds["deepspeed_memcpy of too many copies nothing"] = not half.any()
    holds.expect("a transfer without a handle", _DO)


def test_strides_are_transferred_or_refused(places: list[torch.device], handle: Any, tmp_path: Path) -> None:
    """A tensor in another order of memory, or with gaps: its numbers in their order are in the file, or an error."""
    holds, numbers, file = Holds(), Numbers(torch.float32).normal(96, 130).float(), tmp_path / "file"
    content = numbers.numpy().tobytes()
    for device in places:
        for form, tensor in strided(numbers.to(device)).items():
            case = f"{form} on {device}"
            file.write_bytes(b"")
            if _done(_WRITES["sync_pwrite"], handle, tensor, str(file), 0):
                holds[f"written {case}"] = file.read_bytes() == content
            file.write_bytes(content)
            tensor.zero_()
            if _done(_READS["sync_pread"], handle, tensor, str(file), 0):
                holds.same(f"read {case}", tensor, numbers)
    holds.expect("a transfer of a tensor with strides", _DO)


def test_nothing_is_transferred_of_empty_tensors(
    places: list[torch.device], handle: Any, tmp_path: Path
) -> None:
    """A tensor without elements leaves a file as it is, or is refused; requests after it work."""
    holds, numbers, file = Holds(), Numbers(torch.float32).normal(64).float(), tmp_path / "file"
    file.write_bytes(numbers.numpy().tobytes())
    for device in places:
        none, buffer = torch.empty(0, device=device), torch.zeros(64, device=device)
        for name, call in (_WRITES | _READS).items():
            _done(call, handle, none, str(file), 0)
            holds[f"{name} on {device}: the next request"] = handle.sync_pread(buffer, str(file)) == 1
            holds.same(f"{name} on {device}: the file stays", buffer, numbers)
            buffer.zero_()
    holds.expect("a transfer of nothing", _DO)
