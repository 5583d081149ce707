# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device indices: every method with an index, without one, with each device's, and with what is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, factor
from accel_testkit.suite.needs import public_members, two_devices

pytestmark = pytest.mark.tier("device")

#: The unit of the memory on each device; larger than what an allocator takes at once.
BLOCK = 24 << 20
#: How far two readings of one figure may be apart on a device that other processes use too.
_NOISE = 4 << 20

#: What a method returns, as a value that differs between two devices in different states.
READERS: dict[str, Callable[[Any], Any]] = {
    "current_stream": lambda stream: stream,
    "default_generator": lambda generator: generator.initial_seed(),
    "default_stream": lambda stream: stream,
    "get_rng_state": lambda state: bytes(state.tolist()),
    "memory_stats": lambda stats: stats["allocated_bytes.all.current"],
    **dict.fromkeys(
        (
            "available_memory", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
            "memory_allocated", "memory_cached", "memory_reserved", "total_memory",
        ),
        int,
    ),
}  # fmt: skip
#: The peak that each method resets.
RESETS = {
    "reset_max_memory_allocated": "max_memory_allocated",
    "reset_max_memory_cached": "max_memory_cached",
    "reset_peak_memory_stats": "max_memory_allocated",
}
#: Methods whose index does not choose what they read: it is what they return or make current.
NAMING = ("device", "device_name", "set_device")
WAITING = ("synchronize",)
RESTORING = ("set_rng_state",)
#: Equal devices have equal totals.
ALIKE = ("total_memory",)
#: Methods whose index has no default.
EXPLICIT = ("default_generator",)


def indexed_methods() -> list[str]:
    """Return the names of the interface's methods with a device index, in alphabetical order."""
    return [
        name
        for name, member in public_members().items()
        if inspect.isfunction(member) and "device_index" in inspect.signature(member).parameters
    ]


def read(accelerator: DeepSpeedAccelerator, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of `READERS`; return its result as a value to compare."""
    return READERS[name](getattr(accelerator, name)(*args, **kwargs))


def same(name: str, one: Any, other: Any) -> bool:
    """Return whether two readings of a method are of the same device."""
    return bool(abs(one - other) < _NOISE if name == "available_memory" else one == other)


def call(accelerator: DeepSpeedAccelerator, name: str, *index: Any) -> Any:
    """Call any method with an index; `set_rng_state` is called with the state of the current device."""
    if name == "set_rng_state":
        return accelerator.set_rng_state(accelerator.get_rng_state(), *index)
    return getattr(accelerator, name)(*index)


def share_memory(accelerator: DeepSpeedAccelerator, second: int) -> bool:
    """Return whether memory allocated on one device reduces that of the other, as on cards in host memory."""
    for current, other in ((0, second), (second, 0)):
        accelerator.set_device(current)
        before = accelerator.available_memory(current)
        block = torch.full((2 * BLOCK,), 1, dtype=torch.uint8, device=accelerator.device(other))
        fell = before - accelerator.available_memory(current)
        del block
        if fell < BLOCK:
            return False
    return True


@contextmanager
def different_devices(accelerator: DeepSpeedAccelerator, second: int) -> Iterator[None]:
    """Give two devices different seeds, memory and peaks; afterwards the memory is free again."""
    accelerator.empty_cache()
    held = []
    for index, blocks in ((0, 1), (second, 3)):
        accelerator.set_device(index)
        accelerator.manual_seed(700 + index)
        held.append(torch.empty(blocks * BLOCK, dtype=torch.uint8, device=accelerator.device(index)))
        accelerator.reset_peak_memory_stats(index)
    try:
        yield
    finally:
        held.clear()
        accelerator.set_device(0)
        accelerator.empty_cache()


_BYTES = "return bytes: callers divide and compare them"
_PASS_ON = "pass the index on to the runtime; None is the current device, and 0 is an index too"
#: How far two readings of memory may be apart on a type with one device.
_SEEN = 30 << 20
_NAMES = [name for name in indexed_methods() if name not in NAMING]


@two_devices
@pytest.mark.parametrize("name", needs.methods(READERS))
def test_index_chooses_the_device(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """With an index a method answers for that device, without one, and with None, for the current device.

    A torch.device or its name in place of an index means that device, or is refused; never another device.
    """
    holds = Holds()

    def about(wanted: Any, *form: Any, **by_name: Any) -> None:
        found = read(accelerator, name, *form, **by_name)
        what = f"{name}{form or by_name or '()'} with {current} current: {found!r:.100}, not {wanted!r:.100}"
        holds[what] = same(name, found, wanted)

    with different_devices(accelerator, second):
        found = [read(accelerator, name, index) for index in (0, second)]
        for current in (second, 0, second):
            accelerator.set_device(current)
            for form in ((), (None,)) if name not in EXPLICIT else ():
                about(found[current], *form)
            for index, wanted in zip((0, second), found, strict=True):
                about(wanted, index)
                about(wanted, device_index=index)
                device = accelerator.device_name(index)
                for place in (torch.device(device), device):
                    with suppress(Exception):  # refused
                        about(wanted, place)
    apart = name in ALIKE or not same(name, *found)
    if not apart and name == "available_memory":
        apart = share_memory(accelerator, second)
    unit = factor(abs(found[0] - found[1]), 2 * BLOCK) if isinstance(found[0], int) else ""
    holds[f"devices 0 and 1 differ: {found!r:.300} {unit}"] = apart
    holds.expect(f"{name}() by index", _BYTES if unit else _PASS_ON)


@two_devices
@pytest.mark.parametrize("name", needs.methods(_NAMES))
def test_index_without_a_device_is_refused(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """An index that there is no device for raises; it is never the current device, nor 0."""
    holds = Holds()
    count = accelerator.device_count()
    holds.raises(Exception, f"{name}({count}) of {count} devices", lambda: call(accelerator, name, count))
    holds.expect(f"{name}() out of range", "let the runtime's error through, or compare with device_count()")


@two_devices
@pytest.mark.parametrize("index", ["none", "0", "1"])
@pytest.mark.parametrize("name", needs.methods(RESETS))
@pytest.mark.needs("memory_peaks")
def test_reset_reaches_one_device(
    accelerator: DeepSpeedAccelerator, second: int, name: str, index: str
) -> None:
    """A reset of peaks reaches the device of its index, without one the current device, and no other."""
    figure = getattr(accelerator, RESETS[name])
    with different_devices(accelerator, second):
        for device in (0, second):  # raises the peaks
            torch.empty(2 * BLOCK, dtype=torch.uint8, device=accelerator.device(device))
        accelerator.empty_cache()
        before = figure(0), figure(second)
        accelerator.set_device(second)
        getattr(accelerator, name)(*([] if index == "none" else [int(index)]))
        falls = [b - figure(i) for b, i in zip(before, (0, second), strict=True)]
    fell, unit, holds = [fall > BLOCK // 2 for fall in falls], factor(max(falls), 2 * BLOCK), Holds()
    what = f"fell on devices 0 and 1, with device 1 current and index {index} {unit}".rstrip()
    holds.equal(what, fell, [index == "0", index != "0"])
    holds.expect(f"{RESETS[name]}() after {name}()", _BYTES if unit else _PASS_ON)


@two_devices
@pytest.mark.parametrize("index", ["none", "0", "1"])
def test_state_is_restored_on_one_device(accelerator: DeepSpeedAccelerator, second: int, index: str) -> None:
    """`set_rng_state` reaches the device of its index, without one the current device, and no other."""
    holds, chosen = Holds(), 0 if index == "0" else second
    accelerator.set_device(second)
    accelerator.manual_seed_all(71)
    state = accelerator.get_rng_state(chosen).clone()
    for device in (0, second):  # so that the states of the devices differ too
        accelerator.default_generator(device).manual_seed(72 + device)
    before = [read(accelerator, "get_rng_state", i) for i in (0, second)]
    accelerator.set_rng_state(state, *([] if index == "none" else [int(index)]))
    for device, former in zip((0, second), before, strict=True):
        wanted = bytes(state.tolist()) if device == chosen else former
        after = read(accelerator, "get_rng_state", device)
        holds[f"the state of device {device}, with device 1 current and index {index}"] = after == wanted
    holds["a state moves with a seed"] = before[0] != before[1] != bytes(state.tolist()) != before[0]
    holds.expect("set_rng_state()", _PASS_ON)


@pytest.fixture
def _one_device(accelerator: DeepSpeedAccelerator, traits: Traits) -> Iterator[None]:
    """Skip where devices have indices; the current device is the first one again afterwards."""
    if "indexed_devices" not in traits:
        pytest.skip("the devices have indices")
    accelerator.set_device(0)
    yield
    accelerator.set_device(0)


@pytest.mark.usefixtures("_one_device")
@pytest.mark.parametrize("name", _NAMES)
def test_index_of_the_only_device_is_accepted(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Without indexed devices, a method takes the current index, and answers as it does without one.

    Another index raises or is ignored; it never changes what the answer is about.
    """
    index, holds = accelerator.current_device(), Holds()
    wanted: Any = None
    if name in READERS:
        wanted = read(accelerator, name, *([index] if name in EXPLICIT else []))

    def about(what: str, *indices: Any, **by_name: Any) -> None:
        found: Any = read(accelerator, name, *indices, **by_name) if name in READERS else None
        alike = abs(found - wanted) < _SEEN if "memory" in name and name in READERS else found == wanted
        holds[f"{name}() with {what} is {found!r:.200}, without one {wanted!r:.200}"] = alike

    call(accelerator, name, index)
    about("the current index", index)
    if name in READERS:
        about("the current index by name", device_index=index)
    try:
        call(accelerator, name, index + 1)
    except Exception:  # refused
        pass
    else:
        about("another index", index + 1)
    do = "take None and the current index alike; drop or refuse others"
    holds.expect(f"{name}() of the only device", do)


@pytest.mark.usefixtures("_one_device")
def test_index_of_no_device_is_treated_alike(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """Without indexed devices, either every method drops another index, or every method refuses it."""
    dropping, refusing = [], []
    for name in _NAMES:
        if "streams" in traits and name.endswith("_stream"):
            continue
        try:
            call(accelerator, name, accelerator.current_device() + 1)
            dropping.append(name)
        except Exception:
            refusing.append(name)
    what = f"dropped by {dropping}, or refused by {refusing}"
    do = "derive from OneDeviceAccelerator, which refuses it"
    Holds({what: not refusing or not dropping}).expect("the index of no device", f"treat it alike: {do}")
