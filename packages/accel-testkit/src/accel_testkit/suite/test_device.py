# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: names, indices, counting, waiting."""

from __future__ import annotations

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_raises, expect_type
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("host")

_ANSWERS = (
    "is_available",
    "is_synchronized_device",
    "use_host_timers",
    "resolves_data_dependency",
    "handles_memory_backpressure",
)


def test_device_without_an_index_is_the_type(accelerator: DeepSpeedAccelerator) -> None:
    """`device()` and `device(None)` are torch.device objects of the type alone, for `.to(device())`."""
    found = [accelerator.device(), accelerator.device(None)]
    expect(
        found == [torch.device(accelerator.device_name())] * 2,
        "device() is not the device type",
        found=repr(found),
        expected=f"torch.device({accelerator.device_name()!r}) from both",
        do="return torch.device(name); a device of the runtime's module is a context manager",
    )


@pytest.mark.needs("indexed_devices")
def test_device_with_an_index_keeps_it(accelerator: DeepSpeedAccelerator) -> None:
    """`device(i)` is the torch.device of that index, whichever is current."""
    found = [accelerator.device(0), accelerator.device(1)]
    expect(
        found == [torch.device(accelerator.device_name(), index) for index in (0, 1)],
        "device(i) is not the device of that index",
        found=repr(found),
        expected="torch.device(type, 0) and torch.device(type, 1)",
        do="return torch.device(name, device_index)",
    )


@pytest.mark.needs("indexed_devices")
def test_device_name_with_an_index_keeps_it(accelerator: DeepSpeedAccelerator) -> None:
    """`device_name(i)` is `type:i`, a string that torch takes as a device."""
    name = accelerator.device_name()
    found = [accelerator.device_name(0), accelerator.device_name(1), accelerator.device_name(device_index=1)]
    expect(
        found == [f"{name}:0", f"{name}:1", f"{name}:1"],
        "device_name(i) is not the name of that device",
        found=repr(found),
        expected=f"{name}:0 and {name}:1",
        do="append the index; 0 is an index too",
    )


@pytest.mark.parametrize("name", _ANSWERS)
def test_answer_is_yes_or_no(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Questions about the device are answered with True or False, never None."""
    expect_type(getattr(accelerator, name)(), bool, f"{name}()", do="return a bool on every path")


def test_count_is_a_number(accelerator: DeepSpeedAccelerator) -> None:
    """`device_count()` is an int, 0 where there is no device."""
    expect_type(accelerator.device_count(), int, "device_count()", do="return an int, also without a device")


@pytest.mark.tier("device")
def test_device_is_available(accelerator: DeepSpeedAccelerator) -> None:
    """Where there is a device, `is_available()` is True."""
    expect(
        accelerator.is_available(),
        "the device is counted and not available",
        found=f"device_count() {accelerator.device_count()}, is_available() False",
        expected="True wherever device_count() is above 0",
        do="ask the runtime the same question in both",
    )


@pytest.mark.tier("device")
def test_current_device_is_an_index(accelerator: DeepSpeedAccelerator) -> None:
    """`current_device()` is an int: callers index lists and name devices with it."""
    expect_type(
        accelerator.current_device(), int, "current_device()", do="return the index, not a name or device"
    )


@pytest.mark.tier("device")
def test_current_device_name_is_that_of_the_current_device(accelerator: DeepSpeedAccelerator) -> None:
    """`current_device_name()` is `device_name(current_device())`, or the name of the device that tensors are on."""
    found, current = accelerator.current_device_name(), accelerator.current_device()
    wanted = {
        accelerator.device_name(current),
        str(torch.empty(0, device=accelerator.device(current)).device),
    }
    expect(
        found in wanted,
        "current_device_name() names another device",
        found=repr(found),
        expected=" or ".join(map(repr, sorted(wanted))),
        do="derive it from current_device()",
    )


@pytest.mark.tier("device")
def test_current_device_can_be_set(accelerator: DeepSpeedAccelerator) -> None:
    """After `set_device(0)` the current device is 0."""
    accelerator.set_device(0)
    found = accelerator.current_device()
    expect(
        found == 0,
        "set_device(0) did not make 0 the current device",
        found=repr(found),
        expected="0",
        do="pass the index on to the runtime",
    )


@pytest.mark.tier("device")
def test_current_device_can_be_set_by_name(accelerator: DeepSpeedAccelerator) -> None:
    """`set_device` takes `current_device_name()` too, as torch's own do: ZeRO-3 calls it so."""
    before = accelerator.current_device()
    try:
        accelerator.set_device(accelerator.current_device_name())  # type: ignore[arg-type]
        found = repr(accelerator.current_device())
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    expect(
        found == repr(before),
        "set_device() refuses the name of a device",
        found=found,
        expected=f"{before!r} to be the current device still",
        do="take an index, a torch.device or its name",
    )


@pytest.mark.tier("device")
@pytest.mark.needs("indexed_devices")
def test_index_out_of_range_is_refused(accelerator: DeepSpeedAccelerator) -> None:
    """`set_device` raises RuntimeError for an index that there is no device for."""
    expect_raises(
        RuntimeError,
        lambda: accelerator.set_device(accelerator.device_count()),
        "set_device() accepts an index out of range",
        do="let the runtime's error through, or compare with device_count()",
    )


@pytest.mark.tier("device")
def test_synchronize_waits_for_the_device(accelerator: DeepSpeedAccelerator) -> None:
    """`synchronize` takes nothing, None or an index, and returns None when the work is done."""
    returned = [
        accelerator.synchronize(),
        accelerator.synchronize(None),
        accelerator.synchronize(device_index=accelerator.current_device()),
    ]
    expect(
        returned == [None] * 3,
        "synchronize() returns something",
        found=repr(returned),
        expected="None, when all work queued on the device is done",
        do="wait inside, and return nothing",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_another_device_can_be_current(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`set_device(1)` makes 1 the current device, in number and name."""
    accelerator.set_device(second)
    found = (accelerator.current_device(), accelerator.current_device_name())
    expect(
        found == (second, accelerator.device_name(second)),
        "set_device(1) did not make 1 the current device",
        found=repr(found),
        expected=repr((second, accelerator.device_name(second))),
        do="pass the index on to the runtime",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_new_tensors_are_on_the_current_device(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """A tensor made with the type's name alone is on the current device."""
    accelerator.set_device(second)
    found = torch.empty(1, device=accelerator.device()).device
    wanted = torch.empty(1, device=accelerator.device(second)).device
    expect(
        found == wanted,
        "a new tensor is not on the current device",
        found=str(found),
        expected=str(wanted),
        do="set the device in the runtime, not only in the accelerator object",
    )


def test_setting_the_current_device_changes_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """`set_device(current_device())` leaves the current device, in a rank that a launcher has started, too."""
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        accelerator = target.construct()
        before = accelerator.current_device()
        accelerator.set_device(before)
        expect(
            accelerator.current_device() == before,
            "set_device(current_device()) changes the device",
            found=f"{before} before, {accelerator.current_device()} after it, with LOCAL_RANK={rank}",
            expected="the same index",
            do="keep the index that set_device() is given",
        )
