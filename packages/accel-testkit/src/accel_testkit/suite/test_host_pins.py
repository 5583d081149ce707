# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Another allocator of pinned memory (`host_pins`, as DeepSpeed 0.19 has one): used where it is active, and counted."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")


@dataclass
class _Pins:
    """An allocator in ordinary host memory. locked: addresses that it has given out and not taken back."""

    on: bool = True
    tracked: list[int] = field(default_factory=list)
    locked: set[int] = field(default_factory=set)

    def active(self) -> Any:
        """Return the allocator, None while it is switched off."""
        return self if self.on else None

    def track(self, nbytes: int) -> None:
        self.tracked.append(nbytes)

    def pin(self, tensor: torch.Tensor, make_copy: bool, match_shape: bool) -> torch.Tensor:
        if make_copy:
            return self._lock(tensor.clone())
        return self.pin_empty(tensor, tuple(tensor.shape) if match_shape else (tensor.numel(),))

    def pin_empty(self, template: torch.Tensor, shape: Any) -> torch.Tensor:
        return self._lock(torch.zeros(shape, dtype=template.dtype))

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.data_ptr() in self.locked

    def unpin(self, tensor: torch.Tensor) -> int:
        self.locked.remove(tensor.data_ptr())
        return tensor.data_ptr()

    def _lock(self, tensor: torch.Tensor) -> torch.Tensor:
        self.locked.add(tensor.data_ptr())
        return tensor


@pytest.fixture
def pins(accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch) -> _Pins:
    """The allocator, as the accelerator's."""
    found = _Pins()
    monkeypatch.setattr(type(accelerator), "host_pins", found, raising=False)
    return found


@dataclass(frozen=True)
class _Way:
    """A call that locks memory, and the form of what it gives."""

    call: Callable[[DeepSpeedAccelerator, torch.Tensor], torch.Tensor]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    copies: bool = False


_WAYS = {
    "copy": _Way(lambda acc, host: acc.pin_memory(host), (2, 3), copies=True),
    "copy, a byte's alignment": _Way(lambda acc, host: acc.pin_memory(host, 1), (2, 3), copies=True),
    "no copy": _Way(lambda acc, host: acc.pin_memory(host, make_copy=False), (2, 3)),
    "no copy, flat": _Way(lambda acc, host: acc.pin_memory(host, make_copy=False, match_shape=False), (6,)),
    "empty, lengths": _Way(lambda acc, host: acc.pin_empty(4, 5, dtype=torch.int64), (4, 5), torch.int64),
    "empty, one length": _Way(lambda acc, host: acc.pin_empty(7, dtype=torch.uint8), (7,), torch.uint8),
    "empty, a shape": _Way(lambda acc, host: acc.pin_empty((4, 5), dtype=torch.half), (4, 5), torch.half),
    "empty like": _Way(lambda acc, host: acc.pin_empty_like(host), (2, 3)),
    "empty like, a type": _Way(
        lambda acc, host: acc.pin_empty_like(host, dtype=torch.double), (2, 3), torch.double
    ),
}
every_way = pytest.mark.parametrize("way", _WAYS)


def _host() -> torch.Tensor:
    return torch.arange(1, 7, dtype=torch.float32).reshape(2, 3)


@every_way
def test_active_allocator_is_used(accelerator: DeepSpeedAccelerator, pins: _Pins, way: str) -> None:
    """While another allocator is active, memory comes from it, in the form and with the values asked for."""
    wanted, host = _WAYS[way], _host()
    given = wanted.call(accelerator, host)
    expect(
        given.data_ptr() in pins.locked and accelerator.is_pinned(given) is True,
        f"the active allocator is not used ({way})",
        found=f"is_pinned: {accelerator.is_pinned(given)!r}",
        expected="memory of host_pins.active(), for which is_pinned() is True",
        do="ask host_pins.active() first, in each method that locks memory",
    )
    same = not wanted.copies or torch.equal(given, host)
    expect(
        tuple(given.shape) == wanted.shape and given.dtype == wanted.dtype and same,
        f"the active allocator is asked for something else ({way})",
        found=repr(given),
        expected=f"shape {wanted.shape}, {wanted.dtype}{', the same values' if wanted.copies else ''}",
        do="pass shape, dtype, make_copy and match_shape on",
    )


@every_way
def test_locked_bytes_are_counted(accelerator: DeepSpeedAccelerator, pins: _Pins, way: str) -> None:
    """`host_pins.track` is told the bytes of what the active allocator gives, once."""
    given = _WAYS[way].call(accelerator, _host())
    expect(
        pins.tracked == [given.nbytes],
        f"locked bytes are counted wrongly ({way})",
        found=f"{pins.tracked} for {given.nbytes} bytes",
        expected=f"[{given.nbytes}]",
        do="call host_pins.track once, with the number of bytes that are locked",
    )


@every_way
def test_inactive_allocator_is_left_alone(accelerator: DeepSpeedAccelerator, pins: _Pins, way: str) -> None:
    """While the other allocator is off, memory is torch's: counted if pages are locked, and not given to it."""
    pins.on = False
    wanted = _WAYS[way]
    given = wanted.call(accelerator, _host())
    locks = bool(getattr(accelerator, "torch_pins_host_memory", True))
    counted = [given.nbytes] if locks else []
    expect(
        not pins.locked and pins.tracked == counted and accelerator.unpin_memory(given) is None,
        f"an allocator that is switched off is used or counted wrongly ({way})",
        found=f"tracked {pins.tracked}, taken from it: {len(pins.locked)}",
        expected=f"tracked {counted}, nothing taken from it, and unpin_memory() returns None",
        do="use torch's allocator where host_pins.active() is None; count what it locks",
    )


def test_memory_goes_back_to_its_allocator(accelerator: DeepSpeedAccelerator, pins: _Pins) -> None:
    """`unpin_memory` gives memory back to the active allocator at once, that tensor's alone, and returns its answer."""
    given = [accelerator.pin_memory(_host()) for _ in range(3)]
    answers = [accelerator.unpin_memory(tensor) for tensor in given[:2]]
    expect(
        pins.locked == {given[2].data_ptr()} and answers == [tensor.data_ptr() for tensor in given[:2]],
        "unpin_memory() does not give the memory back",
        found=f"{len(pins.locked)} of three tensors are locked after two calls, which returned {answers}",
        expected="the third one alone, and what unpin of the allocator returned",
        do="return host_pins.active().unpin(tensor)",
    )


def test_other_memory_stays_unpinned(accelerator: DeepSpeedAccelerator, pins: _Pins) -> None:
    """An active allocator does not make ordinary memory pinned."""
    if not accelerator.torch_pins_host_memory and accelerator.torch_is_pinned(_host()):
        return  # the device shares the host's memory
    expect(
        accelerator.is_pinned(_host()) is False,
        "is_pinned() takes ordinary memory for pinned while another allocator is active",
        found="True",
        expected="False",
        do="ask the allocator about this tensor",
    )


def test_whole_pages_are_not_taken_from_it(accelerator: DeepSpeedAccelerator, pins: _Pins) -> None:
    """`align_bytes=0` asks for whole pages, which the other allocator does not promise: they come from elsewhere."""
    given = accelerator.pin_memory(_host(), align_bytes=0)
    expect(
        not pins.locked and torch.equal(given, _host()),
        "an allocator without page alignment is asked for whole pages",
        found=f"{len(pins.locked)} tensors of the active allocator; values {given.tolist()}",
        expected="the same values, in memory that pin_aligned() gives",
        do="call pin_aligned() for align_bytes=0 before host_pins.active() is asked",
    )


def _page() -> tuple[torch.Tensor, int, int]:
    """Return host memory, the address of a whole page of it, and the page's size."""
    memory = torch.zeros(2 * mmap.PAGESIZE, dtype=torch.uint8)
    return memory, memory.data_ptr() + -memory.data_ptr() % mmap.PAGESIZE, mmap.PAGESIZE


def test_registered_memory_can_be_given_back(accelerator: DeepSpeedAccelerator) -> None:
    """A page is registered, given back and registered again; or `register_host_memory` returns False each time."""
    memory, address, size = _page()
    reported = []
    for _ in range(2):
        reported.append(accelerator.register_host_memory(address, size))
        if reported[-1]:
            accelerator.unregister_host_memory(address)
    expect(
        reported in ([True, True], [False, False]),
        "register_host_memory() does not tell whether the memory is registered",
        found=f"{reported} for one page of {memory.nbytes} bytes, which was given back in between",
        expected="[True, True], or [False, False] where nothing is registered",
        do="return True for what was registered, and undo that in unregister_host_memory()",
    )


def test_memory_that_cannot_be_given_back_is_an_error(accelerator: DeepSpeedAccelerator) -> None:
    """Where memory is registered, giving back what is not raises RuntimeError: DeepSpeed then keeps the memory."""
    memory, address, size = _page()
    registers = accelerator.register_host_memory(address, size)
    refused = ""
    try:
        for _ in range(2):
            accelerator.unregister_host_memory(address)
    except RuntimeError as error:
        refused = repr(error)
    expect(
        bool(refused) == registers,
        "unregister_host_memory() hides that the runtime refuses, or refuses what it need not",
        found=refused or f"no exception for a page of {memory.nbytes} bytes that was given back already",
        expected="RuntimeError where register_host_memory() returned True, else nothing",
        do="raise RuntimeError with the runtime's code, so that DeepSpeed does not free the memory",
    )
