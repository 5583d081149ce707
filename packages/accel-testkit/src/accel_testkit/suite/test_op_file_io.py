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


def _numbers(*shape: int) -> torch.Tensor:
    return Numbers(torch.float32).normal(*shape).float()


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


def test_writes_leave_the_rest_of_a_file(handle: Any, place: torch.device, tmp_path: Path) -> None:
    """A write at an offset changes the bytes there; those before and behind it stay, and the file its size."""
    holds, whole = Holds(), _bytes(4 * _PART, 1)
    for name in ("sync_pwrite", "async_pwrite"):
        file, part = tmp_path / name, _bytes(_PART, 2)
        file.write_bytes(whole.numpy().tobytes())
        begun = getattr(handle, name)(part.to(place), str(file), 2 * _PART)
        holds[f"{name} returns what DeepSpeed asserts"] = begun == (1 if name == "sync_pwrite" else 0)
        if name == "async_pwrite":
            holds["wait() counts the write"] = handle.wait() == 1
        wanted = whole.clone()
        wanted[2 * _PART : 3 * _PART] = part
        holds.same(name, _content(file), wanted)
        getattr(handle, name)(part.to(place), str(file), 0)
        handle.wait()
        wanted[:_PART] = part
        holds.same(f"{name} at the begin", _content(file), wanted)
    holds.expect("a write into a file", _DO)


def test_reads_in_flight_each_fill_their_tensor(handle: Any, place: torch.device, tmp_path: Path) -> None:
    """Of several reads that are begun before one is waited for, each fills its own tensor from its own offset."""
    holds, whole, file = Holds(), _bytes(5 * _PART, 3), tmp_path / "file"
    file.write_bytes(whole.numpy().tobytes())
    offsets = [3 * _PART, 0, 512, _PART]
    found = [torch.zeros(_PART, dtype=torch.uint8, device=place) for _ in offsets]
    for tensor, offset in zip(found, offsets, strict=True):
        begun = handle.async_pread(tensor, str(file), offset)
        holds[f"async_pread at {offset} returns 0, as DeepSpeed asserts"] = begun == 0
    holds["wait() counts the reads"] = handle.wait() == len(offsets)
    for tensor, offset in zip(found, offsets, strict=True):
        holds.same(f"async_pread at {offset}", tensor, whole[offset : offset + _PART])
        tensor.zero_()
        handle.sync_pread(tensor, str(file), offset)
        holds.same(f"sync_pread at {offset}", tensor, whole[offset : offset + _PART])
    holds["wait() has nothing left"] = handle.wait() == 0
    holds.expect("a read from a file", _DO)


def _refused(call: Callable[..., Any], *arguments: Any) -> bool:
    """True if a request ends with an error, or with a negative number."""
    try:
        return int(call(*arguments)) < 0
    except Exception:
        return True


def _fails(handle: Any, name: str, buffer: torch.Tensor, file: Path) -> bool:
    """True if a request of the handle ends with an error, or with another number than that of a success."""
    try:
        begun = getattr(handle, name)(buffer, str(file), 0)
        if name.startswith("sync"):
            return bool(begun != 1)
        return (isinstance(begun, int) and begun < 0) or bool(handle.wait() != 1)
    except Exception:
        return True


def test_requests_that_fail_say_so(handle: Any, tmp_path: Path) -> None:
    """A read of what is not there, and a write into a missing folder, are errors; the next request works."""
    file, holds, buffer = tmp_path / "short", Holds(), torch.zeros(_PART, dtype=torch.uint8)
    file.write_bytes(b"x" * 100)
    missing = tmp_path / "missing"
    for name in ("async_pread", "sync_pread"):
        for path in (file, missing):
            holds[f"{name} of a {path.name} file"] = _fails(handle, name, buffer, path)
    holds["a missing folder"] = _fails(handle, "async_pwrite", buffer, tmp_path / "folder" / "file")
    holds["a request after errors"] = not _fails(handle, "async_pwrite", buffer, missing)
    holds.same("what it wrote", _content(missing), buffer)
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
    holds, numbers, file = Holds(), _numbers(96, 130), tmp_path / "file"
    content = numbers.numpy().tobytes()
    for device in places:
        for form, tensor in strided(numbers.to(device)).items():
            case = f"{form} on {device}"
            file.write_bytes(b"")
            if not _refused(handle.sync_pwrite, tensor, str(file)):
                holds[f"written {case}"] = file.read_bytes() == content
            file.write_bytes(content)
            tensor.zero_()
            if not _refused(handle.sync_pread, tensor, str(file)):
                holds.same(f"read {case}", tensor, numbers)
    holds.expect("a transfer of a tensor with strides", _DO)


def test_nothing_is_transferred_of_empty_tensors(
    places: list[torch.device], handle: Any, tmp_path: Path
) -> None:
    """A tensor without elements leaves a file as it is, or is refused; requests after it work."""
    holds, numbers, file = Holds(), _numbers(64), tmp_path / "file"
    content = numbers.numpy().tobytes()
    for device in places:
        none, buffer = torch.empty(0, device=device), torch.zeros(64, device=device)
        for name in ("sync_pwrite", "sync_pread", "async_pwrite", "async_pread"):
            file.write_bytes(content)
            if not _refused(getattr(handle, name), none, str(file)):
                waited = handle.wait() if name.startswith("async") else 1
                holds[f"{name} on {device}: it is counted"] = waited == 1
            holds[f"{name} on {device}: the file stays"] = file.read_bytes() == content
            handle.sync_pread(buffer, str(file))
            holds.same(f"{name} on {device}: the next request", buffer, numbers)
            buffer.zero_()
    holds.expect("a transfer of nothing", _DO)


def test_transfers_may_be_compared_afterwards(
    places: list[torch.device], handle: Any, tmp_path: Path
) -> None:
    """With `validate`, reads and writes at any offset do what they do without it; of a short file it is an error."""
    holds, numbers, file = Holds(), _numbers(3000), tmp_path / "file"
    for device in places:
        for offset in (0, 512, 36):
            file.write_bytes(b"x" * offset)
            case = f"at {offset} on {device}"
            done = handle.write(numbers.to(device), str(file), True, offset)
            holds[f"write {case}"] = done == 0 and file.read_bytes()[offset:] == numbers.numpy().tobytes()
            for validate in (True, False):
                buffer = torch.zeros(3000, device=device)
                done = handle.read(buffer, str(file), validate, offset)
                holds.same(f"read {case}, validate {validate}", buffer, numbers)
                holds[f"read {case}: done"] = done == 0
                buffer.zero_()
                handle.pread(buffer, str(file), validate, True, offset)
                holds[f"pread {case}: counted"] = handle.wait() == 1
                holds.same(f"pread {case}, validate {validate}", buffer, numbers)
        long = torch.zeros(3001, device=device)
        holds[f"a short file on {device}"] = _refused(handle.read, long, str(file), True, 36)
    holds.expect("a transfer with `validate`", _DO)


def test_error_ends_no_other_request(places: list[torch.device], handle: Any, tmp_path: Path) -> None:
    """Where one of several requests fails, `wait()` has waited for the others too, and leaves none behind."""
    holds, numbers, file = Holds(), _numbers(_LONG), tmp_path / "file"
    file.write_bytes(numbers.numpy().tobytes())
    for device in places:
        lost, buffers = torch.zeros(8, device=device), [torch.zeros(_LONG, device=device) for _ in range(3)]
        if _refused(handle.async_pread, lost, str(tmp_path / "missing")):
            pytest.skip("the call raises for the missing file: no request is made of it")
        for buffer in buffers:
            handle.async_pread(buffer, str(file))
        holds[f"wait() raises the error on {device}"] = _refused(lambda: handle.wait() - 1 - len(buffers))  # noqa: B023
        found = [buffer.clone() for buffer in buffers]
        for number, buffer in enumerate(found):
            holds.same(f"request {number} behind the error, on {device}", buffer, numbers)
        holds[f"no request is left on {device}"] = handle.wait() == 0
    holds.expect("a request behind one that fails", _DO)
