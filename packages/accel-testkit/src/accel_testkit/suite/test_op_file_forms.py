# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op file I/O's forms: tensors with strides or without elements, transfers that are compared, or of which one fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("AsyncIOBuilder")]

_DO = "compare it with `accel_ops.io`, which serves the op"
#: Numbers of a request that takes a while.
_LONG = 1 << 20


@pytest.fixture
def handle(accelerator: DeepSpeedAccelerator) -> Any:
    return accelerator.create_op_builder("AsyncIOBuilder").load().aio_handle(16 * 1024, 8, False, True, 2)


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(127))


def _strided(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same numbers in another order of memory, and with gaps between them."""
    spread = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 3.0, device=tensor.device)
    return {"turned": tensor.t().contiguous().t(), "with gaps": spread[:, ::2].copy_(tensor)}


def _places(accelerator: DeepSpeedAccelerator) -> list[torch.device]:
    return [torch.device(name) for name in dict.fromkeys(("cpu", str(accelerator.device())))]


def _refused(call: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a request ends with an error, or with a negative number."""
    try:
        return int(call(*arguments)) < 0
    except Exception:
        return True


def test_strides_are_transferred_or_refused(
    accelerator: DeepSpeedAccelerator, handle: Any, tmp_path: Path
) -> None:
    """A tensor in another order of memory, or with gaps: its numbers in their order are in the file, or an error."""
    holds, numbers, file = Holds(), _numbers(96, 130), tmp_path / "file"
    content = numbers.numpy().tobytes()
    for device in _places(accelerator):
        for form, strided in _strided(numbers.to(device)).items():
            case = f"{form} on {device}"
            file.write_bytes(b"")
            if not _refused(handle.sync_pwrite, strided, str(file)):
                holds[f"written {case}"] = file.read_bytes() == content
            file.write_bytes(content)
            strided.zero_()
            if not _refused(handle.sync_pread, strided, str(file)):
                holds.same(f"read {case}", strided, numbers)
    holds.expect("a transfer of a tensor with strides", _DO)


def test_nothing_is_transferred_of_empty_tensors(
    accelerator: DeepSpeedAccelerator, handle: Any, tmp_path: Path
) -> None:
    """A tensor without elements leaves a file as it is, or is refused; requests after it work."""
    holds, numbers, file = Holds(), _numbers(64), tmp_path / "file"
    content = numbers.numpy().tobytes()
    for device in _places(accelerator):
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
    accelerator: DeepSpeedAccelerator, handle: Any, tmp_path: Path
) -> None:
    """With `validate`, reads and writes at any offset do what they do without it; of a short file it is an error."""
    holds, numbers, file = Holds(), _numbers(3000), tmp_path / "file"
    for device in _places(accelerator):
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


def test_error_ends_no_other_request(accelerator: DeepSpeedAccelerator, handle: Any, tmp_path: Path) -> None:
    """Where one of several requests fails, `wait()` has waited for the others too, and leaves none behind."""
    holds, numbers, file = Holds(), _numbers(_LONG), tmp_path / "file"
    file.write_bytes(numbers.numpy().tobytes())
    for device in _places(accelerator):
        lost, buffers = torch.zeros(8, device=device), [torch.zeros(_LONG, device=device) for _ in range(3)]
        if _refused(handle.async_pread, lost, str(tmp_path / "missing")):
            return  # no request is made of it
        for buffer in buffers:
            handle.async_pread(buffer, str(file))
        holds[f"wait() tells of the error on {device}"] = _refused(lambda: handle.wait() - 1 - len(buffers))  # noqa: B023
        found = [buffer.clone() for buffer in buffers]
        for number, buffer in enumerate(found):
            holds.same(f"request {number} behind the error, on {device}", buffer, numbers)
        holds[f"no request is left on {device}"] = handle.wait() == 0
    holds.expect("a request behind one that fails", _DO)
