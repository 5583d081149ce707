# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: page-locked host tensors in the call forms of every supported DeepSpeed, and its other allocator."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import Holds, expect_equal, outcome

pytestmark = pytest.mark.tier("device")

_pins = pytest.mark.needs("pinned_memory")
_DERIVE = "derive from accel_core's PinnedMemoryInterface, and override its _torch_ methods only"
_ASK = "ask the runtime about tensor.data_ptr() at each call, and keep nothing by tensor or address"


@dataclass(frozen=True)
class _Way:
    """A call that locks memory, and the form of what it gives."""

    call: Callable[[Any, torch.Tensor], torch.Tensor]
    shape: tuple[int, ...] = (2, 3)
    dtype: torch.dtype = torch.float32
    copies: bool = False


#: The ways DeepSpeed asks for pinned memory like a tensor (2, 3): 0.19's, and 0.18's with align_bytes.
_WAYS = {
    "copy": _Way(lambda acc, host: acc.pin_memory(host), copies=True),
    "make_copy": _Way(lambda acc, host: acc.pin_memory(host, make_copy=True, match_shape=True), copies=True),
    "a byte's alignment": _Way(lambda acc, host: acc.pin_memory(host, 1), copies=True),
    "no copy": _Way(lambda acc, host: acc.pin_memory(host, make_copy=False)),
    "no copy, flat": _Way(lambda acc, host: acc.pin_memory(host, make_copy=False, match_shape=False), (6,)),
    "lengths": _Way(lambda acc, host: acc.pin_empty(64, 80, dtype=torch.int64), (64, 80), torch.int64),
    "one length": _Way(lambda acc, host: acc.pin_empty(7, dtype=torch.uint8), (7,), torch.uint8),
    "a shape": _Way(lambda acc, host: acc.pin_empty((4, 5), dtype=torch.half), (4, 5), torch.half),
    "like": _Way(lambda acc, host: acc.pin_empty_like(host)),
    "like, a type": _Way(lambda acc, host: acc.pin_empty_like(host, dtype=torch.double), dtype=torch.double),
}
#: Whole pages, which another allocator does not promise.
_PAGES = {
    "align_bytes": _Way(lambda acc, host: acc.pin_memory(host, align_bytes=0), copies=True),
    "align_bytes by position": _Way(lambda acc, host: acc.pin_memory(host, 0), copies=True),
}
_TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "bfloat16": lambda: torch.arange(7.0).to(torch.bfloat16),
    "float16": lambda: torch.arange(7.0).half(),
    "float64": lambda: torch.arange(7.0).double() / 3,
    "int64": lambda: torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 0]),
    "bool": lambda: torch.tensor([True, False, True]),
    "uint8": lambda: torch.arange(7, dtype=torch.uint8),
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "every other": lambda: torch.arange(12.0)[1::2],
    "a column": lambda: torch.arange(12.0).reshape(3, 4)[:, 1],
    "scalar": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0),
    "no rows": lambda: torch.empty(0, 3, dtype=torch.float16),
}


@pytest.fixture
def host() -> torch.Tensor:
    """A tensor in ordinary host memory."""
    return torch.arange(1, 7, dtype=torch.float32).reshape(2, 3)


def _expect_form(given: torch.Tensor, way: _Way, host: torch.Tensor, holds: Holds) -> None:
    found, wanted = (tuple(given.shape), given.dtype, given.device.type), (way.shape, way.dtype, "cpu")
    holds.equal("its shape, type and place", found, wanted)
    holds[f"its values: {given}"] = not way.copies or torch.equal(given, host)


@pytest.mark.parametrize("way", [*_WAYS, *_PAGES])
def test_memory_has_the_form_asked_for(
    accelerator: DeepSpeedAccelerator, host: torch.Tensor, traits: Traits, way: str
) -> None:
    """A pinned copy has the values, shape and type, a buffer the form asked for; each is new host memory.

    Where nothing is locked a copy may be the tensor itself.
    """
    holds, wanted, before = Holds(), {**_WAYS, **_PAGES}[way], host.clone()
    given = [wanted.call(accelerator, host) for _ in range(2)]
    _expect_form(given[0], wanted, host, holds)
    if not wanted.copies or "pinned_memory" not in traits:
        for number, tensor in enumerate(given):
            tensor.fill_(number)
        holds["another call gives other memory"] = bool((given[0] == 0).all())
        holds.equal("the tensor, once that memory was filled", host.tolist(), before.tolist())
    holds.expect(f"pinned memory ({way})", f"lock new memory for each call; {_DERIVE}")


@_pins
@pytest.mark.parametrize("way", [*_WAYS, *_PAGES])
def test_memory_is_pinned(accelerator: DeepSpeedAccelerator, host: torch.Tensor, way: str) -> None:
    """Functions that lock memory give page-locked memory, each part of it too: DeepSpeed cuts buffers into parts.

    `pin_memory(tensor, align_bytes=0)` begins at a page, whatever the tensor's size: O_DIRECT needs it.
    """
    holds = Holds()
    for source in (host, torch.zeros(1000), torch.zeros(64, 80)):  # within a page, and over several
        given = {**_WAYS, **_PAGES}[way].call(accelerator, source)
        pinned = given.view(-1)
        views = {
            "all of it": given,
            "the end": pinned[-1:],
            "the middle": pinned.narrow(0, pinned.numel() // 2, 3),
            "every other": pinned[1::2],
            "its bytes": pinned.view(torch.uint8)[5:],
        }
        for name, view in views.items():
            holds.equal(f"is_pinned() of {name}, {view.shape}", accelerator.is_pinned(view), True)
        if way in _PAGES:
            offset = given.data_ptr() % mmap.PAGESIZE
            holds.equal(f"bytes behind the beginning of a page, for {source.shape}", offset, 0)
    do = "let is_pinned() ask who locked it about the whole range; begin at a page in pin_aligned()"
    holds.expect(f"pinned memory ({way})", do)


@_pins
@pytest.mark.parametrize("kind", _TENSORS)
def test_any_tensor_is_copied(accelerator: DeepSpeedAccelerator, kind: str) -> None:
    """`pin_memory` keeps values, shape and type of tensors of any type, size and stride; buffers have their form.

    `pin_empty` takes a shape as numbers, a list, a tuple or a torch.Size.
    """
    holds, tensor = Holds(), _TENSORS[kind]()
    shape, dtype = tensor.shape, tensor.dtype
    given = {f"align_bytes={form}": accelerator.pin_memory(tensor, align_bytes=form) for form in (1, 0)}
    for name, pinned in given.items():
        holds.same(f"{name}: {pinned!r}", pinned, tensor)
    given |= {
        "like": accelerator.pin_empty_like(tensor),
        "no copy": accelerator.pin_memory(tensor, make_copy=False),
    }
    if shape:
        given["of numbers"] = accelerator.pin_empty(*shape, dtype=dtype)
    for size in (shape, tuple(shape), list(shape)):
        given[f"of {size!r}"] = accelerator.pin_empty(size, dtype=dtype)
    for name, pinned in given.items():
        holds.equal(name, (pinned.shape, pinned.dtype, pinned.device.type), (shape, dtype, "cpu"))
        holds[f"{name} is pinned"] = not pinned.numel() or accelerator.is_pinned(pinned)
    do = f"copy element by element, of any stride, into memory of the same type; {_DERIVE}"
    holds.expect(f"pinned memory ({kind})", do)


def test_device_other_than_the_host_is_refused(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """`pin_empty` and `pin_empty_like` raise ValueError for a device other than the CPU."""
    holds = Holds()
    for device in {"meta", "no_such_device", accelerator.device().type} - {"cpu"}:
        calls: dict[str, Callable[[], Any]] = {
            "pin_empty": partial(accelerator.pin_empty, 4, dtype=torch.float32, device=device),
            "pin_empty_like": partial(accelerator.pin_empty_like, host, device=device),
        }
        for name, call in calls.items():
            holds.raises(ValueError, f"{name}(device={device!r})", call)
    holds.expect("pinned memory on a device", _DERIVE)


def test_ordinary_memory_is_not_pinned(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """`is_pinned` is False for ordinary host memory, unless the device shares the host's memory and locks none.

    The source of a copy is not pinned either, nor memory on the device: callers ask wherever a tensor may be.
    `torch_pins_host_memory` is whether torch's own way locks pages.
    """
    holds, there = Holds(), torch.ones(4, device=accelerator.device())
    holds.equal("is_pinned() on the device", outcome(lambda: accelerator.is_pinned(there)), False)
    shares = not accelerator.torch_pins_host_memory and accelerator.is_pinned(torch.empty(1))
    for source in () if shares else (host, torch.zeros(3), torch.zeros(1024), torch.zeros(1 << 16)):
        copy, size = accelerator.pin_memory(source), source.numel()
        locked = accelerator.torch_pins_host_memory
        holds.equal(f"is_pinned() of {size} ordinary elements", accelerator.is_pinned(source), False)
        holds.equal(f"is_pinned() of a copy of {size} elements", accelerator.is_pinned(copy), locked)
    holds.expect("memory that nobody locked", _ASK)


@_pins
@pytest.mark.parametrize("size", [16, 1024, 1 << 16])
def test_freed_memory_is_not_pinned(accelerator: DeepSpeedAccelerator, size: int) -> None:
    """Once a pinned tensor is gone its address says nothing: ordinary memory that is there later is not pinned."""
    pinned = [accelerator.pin_memory(torch.zeros(size)) for _ in range(16)]
    del pinned
    ordinary = [torch.zeros(size) for _ in range(64)]
    found = sum(accelerator.is_pinned(tensor) for tensor in ordinary)
    expect_equal("is_pinned() of ordinary tensors, after pinned ones were freed: how many", found, 0, _ASK)


@_pins
def test_answer_follows_the_data_of_a_tensor(accelerator: DeepSpeedAccelerator) -> None:
    """`is_pinned` follows `tensor.data = other`: the same tensor, or parameter, is pinned while its memory is."""
    pinned, again = (accelerator.pin_memory(torch.ones(64)) for _ in range(2))
    ordinary, holds = torch.ones(64), Holds()
    for tensor in (
        torch.zeros(64),
        torch.nn.Parameter(torch.zeros(64)),
        accelerator.pin_memory(torch.zeros(64)),
    ):
        for data in (pinned, ordinary, again, ordinary):
            tensor.data = data
            wanted = data is not ordinary
            holds.equal(f"is_pinned() with pinned memory {wanted}", accelerator.is_pinned(tensor), wanted)
    holds.expect("is_pinned() of a tensor whose data changed", _ASK)


def test_nothing_deprecated_is_called(accelerator: DeepSpeedAccelerator, host: torch.Tensor) -> None:
    """Pinning and unpinning warn of nothing, and raise nothing: the calls are made for every batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what other checks have left
        pinned = accelerator.pin_memory(host)
        accelerator.is_pinned(pinned)
        accelerator.unpin_memory(pinned)
    found = [str(warning.message) for warning in caught]
    do = "leave out what torch deprecated, such as the device"
    expect_equal("what pinning memory warns of", found, [], do)


def test_alignment_is_a_number_of_bytes(accelerator: DeepSpeedAccelerator) -> None:
    """`pin_memory_alignment()` is a power of two, 1 where there is none: sizes are rounded up by it."""
    found, holds = accelerator.pin_memory_alignment(), Holds()
    holds[f"{found!r} is a power of two"] = type(found) is int and found > 0 and found & (found - 1) == 0
    holds.expect("pin_memory_alignment()", "return the alignment in bytes, 1 where any address will do")


@dataclass
class _Pins:
    """Another allocator (`host_pins`, as DeepSpeed 0.19 has one), in ordinary host memory.

    locked: addresses that it has given out and not taken back.
    """

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


@pytest.mark.parametrize("way", _WAYS)
def test_active_allocator_is_used(
    accelerator: DeepSpeedAccelerator, pins: _Pins, host: torch.Tensor, way: str
) -> None:
    """While another allocator is active, memory comes from it as asked for, and `host_pins.track` gets its bytes once.

    `unpin_memory` gives that memory back at once, and returns the allocator's answer. While the other allocator is
    off, memory is torch's: counted if pages are locked, and not given to it.
    """
    holds, given = Holds(), _WAYS[way].call(accelerator, host)
    other = _WAYS[way].call(accelerator, host)
    _expect_form(given, _WAYS[way], host, holds)
    holds["the memory is that of host_pins.active()"] = given.data_ptr() in pins.locked
    holds.equal("is_pinned()", accelerator.is_pinned(given), True)
    holds.equal("bytes that are tracked", pins.tracked, [given.nbytes, other.nbytes])
    holds.equal("unpin_memory()", outcome(lambda: accelerator.unpin_memory(given)), given.data_ptr())
    holds.equal("what is locked then", pins.locked, {other.data_ptr()})
    pins.on, pins.tracked = False, []
    torchs = _WAYS[way].call(accelerator, host)
    locks = bool(getattr(accelerator, "torch_pins_host_memory", True))
    holds.equal("bytes that are tracked while it is off", pins.tracked, [torchs.nbytes] if locks else [])
    holds.equal("unpin_memory() then", outcome(lambda: accelerator.unpin_memory(torchs)), None)
    holds.equal("what was taken from it", pins.locked, {other.data_ptr()})
    do = "ask host_pins.active() first, in each method; pass everything on; use torch's where it is None"
    holds.expect(f"the active allocator ({way})", do)


def test_other_memory_is_not_taken_from_it(
    accelerator: DeepSpeedAccelerator, pins: _Pins, host: torch.Tensor
) -> None:
    """An active allocator makes no ordinary memory pinned, and gives no whole pages (`align_bytes=0`)."""
    holds = Holds()
    if accelerator.torch_pins_host_memory or not accelerator.torch_is_pinned(
        host
    ):  # else it shares the host's memory
        holds.equal("is_pinned() of ordinary memory", accelerator.is_pinned(host), False)
    given = accelerator.pin_memory(host, align_bytes=0)
    holds.equal("what was taken from it", pins.locked, set())
    holds.same(f"a copy in whole pages: {given}", given, host)
    do = "call pin_aligned() for align_bytes=0 before it is asked"
    holds.expect("memory of another allocator than the active one", do)


def test_registered_memory_can_be_given_back(accelerator: DeepSpeedAccelerator) -> None:
    """A page is registered, given back and registered again; or `register_host_memory` returns False each time.

    Where memory is registered, giving back what is not raises RuntimeError: DeepSpeed then keeps the memory.
    """
    holds, memory = Holds(), torch.zeros(2 * mmap.PAGESIZE, dtype=torch.uint8)
    address = memory.data_ptr() + -memory.data_ptr() % mmap.PAGESIZE
    registers = accelerator.register_host_memory(address, mmap.PAGESIZE)
    if registers:
        accelerator.unregister_host_memory(address)
    again = accelerator.register_host_memory(address, mmap.PAGESIZE)
    holds[f"register_host_memory() is True or False each time: {registers}, {again}"] = (
        type(registers) is bool and registers is again
    )
    if registers:
        holds.equal(
            "unregister_host_memory()", outcome(lambda: accelerator.unregister_host_memory(address)), None
        )
        refused = "unregister_host_memory() of what was given back"
        holds.raises(RuntimeError, refused, lambda: accelerator.unregister_host_memory(address))
    else:
        found = outcome(lambda: accelerator.unregister_host_memory(address))
        holds.equal("unregister_host_memory() where nothing is registered", found, None)
    do = "return True for what was registered; raise RuntimeError with the runtime's code"
    holds.expect("a registered page", do)
