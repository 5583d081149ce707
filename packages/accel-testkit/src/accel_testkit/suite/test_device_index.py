# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device indices: every method with an index, without one, with each device's, and with what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.device_index import (
    ALIKE,
    BLOCK,
    EXPLICIT,
    NAMING,
    READERS,
    RESETS,
    call,
    different_devices,
    indexed_methods,
    read,
    same,
)
from accel_testkit.suite.expect import expect, factor

pytestmark = [pytest.mark.tier("multi"), pytest.mark.needs("indexed_devices")]

_BYTES = "return bytes: callers divide and compare them"
_PASS_ON = "pass the index on to the runtime; None is the current device, and 0 is an index too"
#: The trait without which a method tells no devices apart.
_NEEDS = {
    "current_stream": "streams",
    "default_stream": "streams",
    "memory_reserved": "reserved_memory",
    "max_memory_reserved": "reserved_memory",
    "memory_cached": "reserved_memory",
    "max_memory_cached": "reserved_memory",
}


def _parameters(names: Any) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.needs(_NEEDS[name])] if name in _NEEDS else [])
        for name in names
    ]


@pytest.mark.parametrize("name", _parameters(READERS))
def test_index_chooses_the_device(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """With an index a method answers for that device, whichever device is current."""
    with different_devices(accelerator, second):
        found = {}
        for current in (0, second):
            accelerator.set_device(current)
            found[current] = [read(accelerator, name, 0), read(accelerator, name, second)]
            found[current] += [read(accelerator, name, device_index=i) for i in (0, second)]
    apart = name in ALIKE or not same(name, *found[0][:2])
    steady = all(
        same(name, a, b) for values in found.values() for a, b in zip(values, found[0][:2] * 2, strict=True)
    )
    first, other = found[0][:2]
    unit = factor(abs(first - other), 2 * BLOCK) if isinstance(first, int) else ""
    expect(
        apart and steady,
        f"{name}(i) is not in bytes" if unit else f"{name}(i) is not about device i",
        found="; ".join(
            [*(f"device {c} current: {v!r:.300}" for c, v in found.items()), *filter(None, [unit])]
        ),
        expected="for devices 0 and 1, by position and by name, two values that do not depend on the current device",
        do=_BYTES if unit else _PASS_ON,
    )


@pytest.mark.parametrize("name", _parameters(n for n in READERS if n not in EXPLICIT))
def test_no_index_is_the_current_device(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """Without an index, and with None, a method answers for the current device, also when that is device 1."""
    wrong = []
    with different_devices(accelerator, second):
        for current in (second, 0, second):
            accelerator.set_device(current)
            wanted = read(accelerator, name, current)
            found = [read(accelerator, name), read(accelerator, name, None)]
            wrong += [(current, value, wanted) for value in found if not same(name, value, wanted)]
    expect(
        not wrong,
        f"{name}() is not about the current device",
        found="; ".join(f"device {c} current: {v!r:.100}, and of it {w!r:.100}" for c, v, w in wrong),
        expected=f"{name}(current_device())",
        do=_PASS_ON,
    )


@pytest.mark.parametrize("name", _parameters(n for n in READERS if n not in ALIKE))
def test_device_as_an_index_is_that_device(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """A torch.device or its name in place of an index means that device, or is refused; never another device."""
    wrong = []
    with different_devices(accelerator, second):
        for current, other in ((0, second), (second, 0)):
            accelerator.set_device(current)
            wanted = read(accelerator, name, other)
            for form in (torch.device(accelerator.device_name(), other), accelerator.device_name(other)):
                try:
                    value = read(accelerator, name, form)
                except Exception:  # refused
                    continue
                if not same(name, value, wanted):
                    wrong.append(f"{form!r}: {value!r:.100}, {name}({other}): {wanted!r:.100}")
    expect(
        not wrong,
        f"{name}() takes a device for another one",
        found="; ".join(wrong),
        expected="the device that was named, or an exception",
        do="pass the argument on to the runtime, or use its index",
    )


@pytest.mark.parametrize("name", _parameters(n for n in indexed_methods() if n not in NAMING))
def test_index_without_a_device_is_refused(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """An index that there is no device for raises; it is never the current device, nor 0."""
    try:
        found = f"{call(accelerator, name, accelerator.device_count())!r:.200}"
    except Exception:
        return
    expect(
        False,
        f"{name}() accepts an index out of range",
        found=f"{found} for index {accelerator.device_count()} of {accelerator.device_count()} devices",
        expected="the runtime's exception",
        do="let the runtime's error through, or compare with device_count()",
    )


@pytest.mark.parametrize("index", ["none", "0", "1"])
@pytest.mark.parametrize("name", RESETS)
@pytest.mark.needs("memory_peaks", "reserved_memory")
def test_reset_reaches_one_device(
    accelerator: DeepSpeedAccelerator, second: int, name: str, index: str
) -> None:
    """A reset of peaks reaches the device of its index, without one the current device, and no other."""
    figure = getattr(accelerator, RESETS[name])
    with different_devices(accelerator, second):
        _raise_peaks(accelerator, second)
        before = figure(0), figure(second)
        accelerator.set_device(second)
        getattr(accelerator, name)(*([] if index == "none" else [int(index)]))
        falls = [b - figure(i) for b, i in zip(before, (0, second), strict=True)]
    fell = [fall > BLOCK // 2 for fall in falls]
    wanted = [index == "0", index != "0"]
    unit = factor(max(falls), 2 * BLOCK)
    expect(
        fell == wanted,
        f"{RESETS[name]}() is not in bytes" if unit else f"{name}() resets another device",
        found=f"with device 1 current and index {index}, fell on devices 0 and 1: {fell}{f'; {unit}' if unit else ''}",
        expected=repr(wanted),
        do=_BYTES if unit else _PASS_ON,
    )


def _raise_peaks(accelerator: DeepSpeedAccelerator, second: int) -> None:
    for index in (0, second):
        block = torch.empty(2 * BLOCK, dtype=torch.uint8, device=accelerator.device(index))
        del block
    accelerator.empty_cache()


@pytest.mark.parametrize("index", ["none", "0", "1"])
def test_state_is_restored_on_one_device(accelerator: DeepSpeedAccelerator, second: int, index: str) -> None:
    """`set_rng_state` reaches the device of its index, without one the current device, and no other."""
    accelerator.set_device(second)
    accelerator.manual_seed_all(71)
    state = accelerator.get_rng_state(0 if index == "0" else second)
    accelerator.manual_seed_all(72)
    before = [read(accelerator, "get_rng_state", i) for i in (0, second)]
    accelerator.set_rng_state(state, *([] if index == "none" else [int(index)]))
    after = [read(accelerator, "get_rng_state", i) for i in (0, second)]
    changed = [a != b for a, b in zip(before, after, strict=True)]
    wanted = [index == "0", index != "0"]
    expect(
        changed == wanted,
        "set_rng_state() sets the state of another device",
        found=f"with device 1 current and index {index}, devices 0 and 1 changed: {changed}",
        expected=repr(wanted),
        do=_PASS_ON,
    )
