# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The current device: what chooses it, what follows it, and what leaves it alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.device_index import call, different_devices, indexed_methods
from accel_testkit.suite.expect import expect

pytestmark = [pytest.mark.tier("multi"), pytest.mark.needs("indexed_devices")]

_CONSTRUCTORS = {
    "BFloat16Tensor": "bf16",
    "ByteTensor": "",
    "DoubleTensor": "fp64",
    "FloatTensor": "",
    "HalfTensor": "",
    "IntTensor": "",
    "LongTensor": "",
}


@pytest.mark.parametrize("name", ["initial_seed", "current_device", "current_device_name"])
def test_answer_is_of_the_current_device(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """What takes no index answers for the device that is current now, not for the first one or the first asked."""
    found = []
    with different_devices(accelerator, second):
        for current in (0, second, 0):
            accelerator.set_device(current)
            found.append(getattr(accelerator, name)())
    wanted = {
        "initial_seed": [700, 701, 700],
        "current_device": [0, second, 0],
        "current_device_name": [accelerator.device_name(index) for index in (0, second, 0)],
    }[name]
    expect(
        found == wanted,
        f"{name}() is not about the current device",
        found=f"{found} while devices 0, 1, 0 were current",
        expected=repr(wanted),
        do="ask the runtime at each call",
    )


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.needs(t, n)] if t else []) for n, t in _CONSTRUCTORS.items()]
)
def test_constructor_uses_the_current_device(
    accelerator: DeepSpeedAccelerator, second: int, name: str
) -> None:
    """`XTensor(data)` is on the device that is current, as `torch.empty(device=device())` is."""
    wrong = []
    for current in (second, 0):
        accelerator.set_device(current)
        tensor = getattr(accelerator, name)([1, 0])
        wanted = torch.empty(1, device=accelerator.device(current)).device
        if tensor.device != wanted or not accelerator.on_accelerator(tensor):
            wrong.append(f"{tensor.device}, on_accelerator() {accelerator.on_accelerator(tensor)}")
    expect(
        not wrong,
        f"{name}() does not use the current device",
        found="; ".join(wrong),
        expected="a tensor on the current device, of which on_accelerator() is True whichever is current",
        do="construct with device=device(), and compare the type of a tensor's device",
    )


@pytest.mark.parametrize("name", [n for n in indexed_methods() if n != "set_device"])
def test_current_device_stays(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """Asking with any index, also one that is refused, leaves the current device as it is."""
    moved = []
    for current in (0, second):
        for index in (0, second, accelerator.device_count(), accelerator.device_name(second)):
            accelerator.set_device(current)
            try:
                call(accelerator, name, index)
            except Exception:  # whether it is refused is another check's subject
                pass
            if accelerator.current_device() != current:
                moved.append(f"{current} to {accelerator.current_device()} by {name}({index!r})")
    expect(
        not moved,
        f"{name}() changes the current device",
        found="; ".join(moved),
        expected="the same current device after each call",
        do="pass the index on to the runtime instead of making that device current",
    )


@pytest.mark.parametrize("form", ["by index", "by name", "by device"])
def test_set_device_takes_each_form(accelerator: DeepSpeedAccelerator, second: int, form: str) -> None:
    """`set_device` takes an index, a device's name, and a torch.device, as torch's own do."""
    found = []
    for index in (second, 0, second):
        forms = {
            "by index": index,
            "by name": accelerator.device_name(index),
            "by device": accelerator.device(index),
        }
        accelerator.set_device(forms[form])  # type: ignore[arg-type]
        found.append(accelerator.current_device())
    expect(
        found == [second, 0, second],
        f"set_device() does not choose a device {form}",
        found=f"current_device() {found} after devices 1, 0, 1 were chosen",
        expected=repr([second, 0, second]),
        do="take an index, a torch.device or its name",
    )


@pytest.mark.parametrize("where", ["here", "in a thread"])
@pytest.mark.parametrize("form", ["by index", "by name", "by device", "by keyword"])
def test_device_that_is_set_gets_the_tensors(
    accelerator: DeepSpeedAccelerator, second: int, form: str, where: str
) -> None:
    """After `set_device` in each form new tensors are on that device, also in a thread that has used none before."""
    found: list[Any] = []

    def choose() -> None:
        for index in (second, 0, second):
            forms: dict[str, Any] = {
                "by name": accelerator.device_name(index),
                "by device": accelerator.device(index),
            }
            if form == "by keyword":
                accelerator.set_device(device_index=index)
            else:
                accelerator.set_device(forms.get(form, index))
            place = torch.empty(1, device=accelerator.device()).device
            found.append((accelerator.current_device(), place))

    if where == "here":
        choose()
    else:
        thread = threading.Thread(target=choose)
        thread.start()
        thread.join()
    wanted = [(i, torch.empty(1, device=accelerator.device(i)).device) for i in (second, 0, second)]
    expect(
        [each[0] for each in found] == [second, 0, second] and (not _distinct(wanted) or found == wanted),
        f"set_device() {form}, {where}, does not choose the device of new tensors",
        found=f"current_device() and a new tensor's device: {found}",
        expected=f"{wanted} after devices 1, 0, 1 were chosen",
        do="pass every form on to the runtime, in the thread of the caller",
    )


def _distinct(places: list[Any]) -> bool:
    """Whether tensors of two devices can be told apart."""
    return len({place for _, place in places}) > 1


@pytest.mark.parametrize("wrong", [None, 1.5, "meta", "no device", 99, [1]], ids=repr)
def test_set_device_with_no_device_changes_nothing(
    accelerator: DeepSpeedAccelerator, second: int, wrong: Any
) -> None:
    """What names no device of this type leaves the current device as it is, with an exception or without."""
    for current in (0, second):
        accelerator.set_device(current)
        try:
            accelerator.set_device(wrong)
        except Exception:
            pass
        expect(
            accelerator.current_device() == current,
            f"set_device({wrong!r}) chooses a device",
            found=f"current_device() is {accelerator.current_device()}, before it {current}",
            expected="the same device as before, and an exception where the runtime raises one",
            do="pass the argument on to the runtime as it is",
        )


def test_each_thread_has_its_current_device(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """A device that another thread makes current is not the current one of this thread."""
    there: list[int] = []

    def choose() -> None:
        accelerator.set_device(second)
        there.append(accelerator.current_device())

    accelerator.set_device(0)
    thread = threading.Thread(target=choose)
    thread.start()
    thread.join()
    found = (there, accelerator.current_device())
    expect(
        found == ([second], 0),
        "set_device() in another thread changes the current device of this one",
        found=f"current_device() {found[0]} there, {found[1]} here",
        expected=f"{[second]} there, 0 here",
        do="keep the current device in the runtime, which has one for each thread",
    )


def test_variables_of_a_launcher_choose_nothing(
    accelerator: DeepSpeedAccelerator, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of a rank change no answer once devices are in use: DeepSpeed's ranks call `set_device`."""

    def answers() -> list[object]:
        found: list[object] = []
        for current in (0, second):
            accelerator.set_device(current)
            found += [accelerator.current_device(), accelerator.current_device_name()]
        return [*found, accelerator.device_count(), accelerator.is_available()]

    before = answers()
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "CROSS_SIZE"):
        monkeypatch.setenv(name, "1")
    found = answers()
    expect(
        found == before,
        "answers follow the variables of a launcher",
        found=f"{found} in a job of ranks",
        expected=f"{before}: current devices after set_device(0) and set_device(1), count, availability",
        do="ask the runtime: whoever starts ranks calls set_device() in them",
    )


def test_set_device_counts_each_time(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`set_device` chooses the device also if it was chosen before, and another thread or object chose since."""
    accelerator.set_device(second)
    found: dict[str, Any] = {}

    def choose() -> None:
        accelerator.set_device(second)
        found["in a thread, after the same index here"] = (accelerator.current_device(), _place(accelerator))

    thread = threading.Thread(target=choose)
    thread.start()
    thread.join()
    wanted = (second, torch.empty(1, device=accelerator.device(second)).device)
    other = type(accelerator)()
    other.set_device(0)
    accelerator.set_device(second)
    found["after another object chose device 0"] = (accelerator.current_device(), _place(accelerator))
    wrong = {where: each for where, each in found.items() if each != wanted}
    expect(
        len(found) == 2 and not wrong,
        "set_device() with the index of before chooses nothing",
        found=f"current device and place of a new tensor: {wrong or found}",
        expected=f"{wanted} after set_device({second})",
        do="pass every call on to the runtime; what was chosen last is known there, for each thread",
    )


def _place(accelerator: DeepSpeedAccelerator) -> torch.device:
    return torch.empty(1, device=accelerator.device()).device


#: Calls without an index, beside those that are indexed_methods.
_WITHOUT_INDEX: dict[str, Callable[[DeepSpeedAccelerator], object]] = {
    "manual_seed": lambda accelerator: accelerator.manual_seed(3),
    "manual_seed_all": lambda accelerator: accelerator.manual_seed_all(3),
    "initial_seed": lambda accelerator: accelerator.initial_seed(),
    "default_generator": lambda accelerator: [
        accelerator.default_generator(index) for index in range(accelerator.device_count())
    ],
    "empty_cache": lambda accelerator: accelerator.empty_cache(),
    "is_available": lambda accelerator: accelerator.is_available(),
    "device_count": lambda accelerator: accelerator.device_count(),
    "supported_dtypes": lambda accelerator: accelerator.supported_dtypes(),
    "lazy_call": lambda accelerator: accelerator.lazy_call(lambda: None),
    "create_graph": lambda accelerator: accelerator.create_graph(),
    "Stream": lambda accelerator: accelerator.Stream and accelerator.Stream(),
    "Event": lambda accelerator: accelerator.Event and accelerator.Event(),
    "range_push": lambda accelerator: [accelerator.range_push("step"), accelerator.range_pop()],
    "pin_memory": lambda accelerator: accelerator.pin_memory(torch.ones(4)),
    "on_accelerator": lambda accelerator: accelerator.on_accelerator(torch.ones(4)),
}


@pytest.mark.parametrize("name", _WITHOUT_INDEX)
def test_current_device_stays_without_an_index(
    accelerator: DeepSpeedAccelerator, second: int, name: str
) -> None:
    """What takes no index leaves the current device as it is, also what is done on all devices."""
    moved = []
    for current in (second, 0):
        accelerator.set_device(current)
        _WITHOUT_INDEX[name](accelerator)
        if accelerator.current_device() != current:
            moved.append(f"{current} to {accelerator.current_device()}")
    expect(
        not moved,
        f"{name} changes the current device",
        found="; ".join(moved),
        expected="the same current device after the call",
        do="use each device by its index, or in a context that restores the former one",
    )
