# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: page-locked host tensors, in the call forms of every supported DeepSpeed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_raises

pytestmark = pytest.mark.tier("device")

#: The ways DeepSpeed asks for a pinned copy: 0.19's, then 0.18's with align_bytes.
_FORMS: dict[str, Callable[[DeepSpeedAccelerator, torch.Tensor], torch.Tensor]] = {
    "plain": lambda acc, tensor: acc.pin_memory(tensor),
    "make_copy": lambda acc, tensor: acc.pin_memory(tensor, make_copy=True, match_shape=True),
    "align_bytes": lambda acc, tensor: acc.pin_memory(tensor, align_bytes=0),
    "align_bytes by position": lambda acc, tensor: acc.pin_memory(tensor, 0),
}


@pytest.fixture
def host() -> torch.Tensor:
    """A tensor in ordinary host memory."""
    return torch.arange(6, dtype=torch.float32).reshape(2, 3)


@pytest.mark.parametrize("form", _FORMS)
def test_copy_has_the_data(accelerator: DeepSpeedAccelerator, host: torch.Tensor, form: str) -> None:
    """`pin_memory` gives a host tensor with the same values, shape and type, in old and new call forms."""
    pinned = _FORMS[form](accelerator, host)
    expect(
        pinned.device.type == "cpu" and pinned.dtype == host.dtype and torch.equal(pinned, host),
        "pin_memory() loses the tensor's data",
        found=repr(pinned),
        expected=repr(host),
        do="copy the values into the page-locked tensor",
    )


@pytest.mark.needs("pinned_memory")
@pytest.mark.parametrize("form", _FORMS)
def test_copy_is_pinned(accelerator: DeepSpeedAccelerator, host: torch.Tensor, form: str) -> None:
    """What `pin_memory` gives is page-locked: `is_pinned` says so."""
    _expect_pinned(accelerator, _FORMS[form](accelerator, host), f"pin_memory ({form})")


def test_ordinary_memory_is_not_pinned(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """`is_pinned` is False for ordinary host memory, unless the device shares the host's memory and locks none."""
    if not accelerator.torch_pins_host_memory and accelerator.is_pinned(torch.empty(1)):
        return
    expect(
        accelerator.is_pinned(host) is False,
        "is_pinned() takes ordinary memory for pinned",
        found=repr(accelerator.is_pinned(host)),
        expected="False",
        do="ask the runtime about this tensor's memory",
    )


@pytest.mark.needs("pinned_memory")
@pytest.mark.parametrize(
    ("match_shape", "shape"), [(True, (2, 3)), (False, (6,))], ids=["same shape", "flat"]
)
def test_buffer_without_a_copy(
    accelerator: DeepSpeedAccelerator, host: torch.Tensor, match_shape: bool, shape: tuple[int, ...]
) -> None:
    """`make_copy=False` gives a pinned buffer of the same type and size, flat without match_shape."""
    buffer = accelerator.pin_memory(host, make_copy=False, match_shape=match_shape)
    _expect_buffer(accelerator, buffer, shape, torch.float32)


@pytest.mark.needs("pinned_memory")
def test_empty_buffers(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """`pin_empty` and `pin_empty_like` give pinned buffers of the shape and type asked for."""
    _expect_buffer(accelerator, accelerator.pin_empty(4, 2, dtype=torch.float16), (4, 2), torch.float16)
    _expect_buffer(accelerator, accelerator.pin_empty_like(host), (2, 3), torch.float32)


@pytest.mark.needs("pinned_memory")
def test_buffers_have_any_shape(accelerator: DeepSpeedAccelerator) -> None:
    """`pin_empty` takes its shape as numbers, a list, a tuple or a torch.Size, and one without elements too."""
    shapes: list[tuple[Any, ...]] = [(4, 2), ([4, 2],), ((4, 2),), (torch.Size([4, 2]),), (3,), ([],)]
    shapes += [(0,), (0, 3), ([2, 0],)]
    wrong = []
    for shape in shapes:
        wanted = torch.empty(*shape, dtype=torch.float16)
        for buffer in (
            accelerator.pin_empty(*shape, dtype=torch.float16),
            accelerator.pin_empty_like(wanted),
            accelerator.pin_memory(wanted, make_copy=False),
        ):
            if (buffer.shape, buffer.dtype, buffer.device) != (wanted.shape, wanted.dtype, wanted.device):
                wrong.append(f"{shape}: {tuple(buffer.shape)} {buffer.dtype} on {buffer.device}")
            elif buffer.numel() and not accelerator.is_pinned(buffer):
                wrong.append(f"{shape}: not pinned")
    expect(
        not wrong,
        "pinned buffers have another shape, or are not pinned",
        found="; ".join(wrong),
        expected="what torch.empty makes of the same arguments, page-locked",
        do="derive from accel_core's PinnedMemoryInterface, and override its _torch_ methods only",
    )


def test_buffers_are_new_host_memory(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """Buffers without a copy are new host tensors of the form asked for, also where nothing is locked."""
    before = host.clone()
    buffers = {
        "pin_empty": (accelerator.pin_empty(4, 2, dtype=torch.float16), (4, 2), torch.float16),
        "pin_empty_like": (accelerator.pin_empty_like(host), (2, 3), torch.float32),
        "pin_memory, no copy": (accelerator.pin_memory(host, make_copy=False), (2, 3), torch.float32),
        "pin_memory, no copy, flat": (
            accelerator.pin_memory(host, make_copy=False, match_shape=False),
            (6,),
            torch.float32,
        ),
        "pin_empty_like, a type": (accelerator.pin_empty_like(host, dtype=torch.int64), (2, 3), torch.int64),
    }
    wrong = []
    for name, (buffer, shape, dtype) in buffers.items():
        if (tuple(buffer.shape), buffer.dtype, buffer.device.type) != (shape, dtype, "cpu"):
            wrong.append(f"{name}: {tuple(buffer.shape)} {buffer.dtype} on {buffer.device}")
        else:
            buffer.fill_(7)
    expect(
        not wrong and torch.equal(host, before),
        "a buffer has another form, or is the tensor that it was to be like",
        found="; ".join(wrong) or f"the tensor holds {host.tolist()} once the buffers were filled",
        expected="new host memory of the shape and type asked for",
        do="return tensor.new_empty(shape) where there is nothing to lock",
    )


def test_locks_of_torch_are_told(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """`torch_pins_host_memory` is whether torch's own way locks pages: DeepSpeed's accounting counts these bytes."""
    if accelerator.is_pinned(host):
        return  # the device shares the host's memory: all of it counts as pinned, and none is locked
    found = accelerator.torch_pins_host_memory, accelerator.is_pinned(accelerator.pin_memory(host))
    expect(
        found[0] is found[1],
        "torch_pins_host_memory contradicts what pin_memory() gives",
        found=f"torch_pins_host_memory {found[0]}, is_pinned() of a copy {found[1]}",
        expected="True where pages are locked, and False where not",
        do="derive from accel_core.NoPinnedMemory where nothing is locked",
    )


def test_pinned_memory_is_host_memory(accelerator: DeepSpeedAccelerator) -> None:
    """`pin_empty` raises ValueError for a device other than the CPU."""
    expect_raises(
        ValueError,
        lambda: accelerator.pin_empty(4, dtype=torch.float32, device="meta"),
        "pin_empty() accepts another device than the CPU",
        do="derive from accel_core's PinnedMemoryInterface, and override its _torch_ methods only",
    )


@pytest.mark.needs("pinned_memory")
def test_copy_to_the_device_need_not_block(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """A non_blocking copy from pinned memory has arrived after `synchronize()`."""
    copy = accelerator.pin_memory(host).to(accelerator.device(), non_blocking=True)
    accelerator.synchronize()
    expect(
        torch.equal(copy.cpu(), host),
        "a non_blocking copy is wrong after synchronize()",
        found=repr(copy.cpu()),
        expected=repr(host),
        do="make synchronize() wait for copies too",
    )


def test_memory_can_be_unpinned(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """`unpin_memory` takes what `pin_memory` gave, and raises nothing."""
    accelerator.unpin_memory(accelerator.pin_memory(host))


def test_nothing_deprecated_is_called(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """Pinning warns of nothing: the calls are made for every batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what other checks have left
        accelerator.is_pinned(accelerator.pin_memory(host))
    expect(
        not caught,
        "pinning memory warns",
        found="; ".join(str(warning.message) for warning in caught),
        expected="no warning",
        do="leave out arguments that torch deprecated, such as the device",
    )


def _expect_buffer(
    accelerator: DeepSpeedAccelerator, buffer: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    expect(
        tuple(buffer.shape) == shape and buffer.dtype == dtype,
        "a pinned buffer has another form",
        found=f"{tuple(buffer.shape)} {buffer.dtype}",
        expected=f"{shape} {dtype}",
        do="derive from accel_core's PinnedMemoryInterface, and override its _torch_ methods only",
    )
    _expect_pinned(accelerator, buffer, "the buffer")


def _expect_pinned(accelerator: DeepSpeedAccelerator, tensor: torch.Tensor, what: str) -> None:
    expect(
        accelerator.is_pinned(tensor) is True,
        f"{what} is not pinned",
        found=f"is_pinned() is {accelerator.is_pinned(tensor)!r}",
        expected="True; declare the trait pinned_memory where there is nothing to pin for",
        do="lock the memory, and let is_pinned() ask the one who locked it",
    )


@pytest.mark.parametrize("place", ["meta", "device"])
def test_pinned_memory_like_another_is_host_memory(
    accelerator: DeepSpeedAccelerator, host: torch.Tensor, place: str
) -> None:
    """`pin_empty_like` raises ValueError for a device other than the CPU."""
    device = torch.device("meta") if place == "meta" else accelerator.device()
    if device.type == "cpu":
        return
    expect_raises(
        ValueError,
        lambda: accelerator.pin_empty_like(host, device=device),
        "pin_empty_like() accepts another device than the CPU",
        do="derive from accel_core's PinnedMemoryInterface, and override its _torch_ methods only",
    )


def test_device_memory_is_not_pinned(accelerator: DeepSpeedAccelerator) -> None:
    """`is_pinned` of a tensor on the device is False, as torch's own is: callers ask wherever a tensor may be."""
    tensor = torch.ones(4, device=accelerator.device())
    try:
        found: object = accelerator.is_pinned(tensor)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    expect(
        found is False,
        "is_pinned() is wrong about a tensor on the device",
        found=found,
        expected="False",
        do="return what tensor.is_pinned() returns",
    )


def test_alignment_is_a_number_of_bytes(accelerator: DeepSpeedAccelerator) -> None:
    """`pin_memory_alignment()` is a power of two, 1 where there is none: sizes are rounded up by it."""
    found = accelerator.pin_memory_alignment()
    expect(
        type(found) is int and found > 0 and found & (found - 1) == 0,
        "pin_memory_alignment() is no alignment",
        found=repr(found),
        expected="an int that is a power of two; 1 means none",
        do="return the alignment in bytes, 1 where any address will do",
    )
