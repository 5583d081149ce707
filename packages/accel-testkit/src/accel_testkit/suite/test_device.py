# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: names, indices, and the current device: what chooses it, what follows it, what leaves it alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import methodcaller
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, expect_equal, outcome
from accel_testkit.suite.needs import two_devices
from accel_testkit.suite.target import Target
from accel_testkit.suite.test_device_index import call, different_devices, indexed_methods
from accel_testkit.suite.test_tensors import CONSTRUCTORS

pytestmark = pytest.mark.tier("host")

_PASS_ON = "pass every form of the index on to the runtime, at each call, in the thread of the caller"


def _place(accelerator: DeepSpeedAccelerator, *index: int) -> torch.device:
    """Return the device of a new tensor."""
    return torch.empty(1, device=accelerator.device(*index)).device


def _in_a_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


def test_device_without_an_index_is_the_type(accelerator: DeepSpeedAccelerator) -> None:
    """`device()` and `device(None)` are torch.device objects of the type alone, for `.to(device())`."""
    holds, wanted = Holds(), torch.device(accelerator.device_name())
    holds.equal("device()", accelerator.device(), wanted)
    holds.equal("device(None)", accelerator.device(None), wanted)
    do = "return torch.device(name); a device of the runtime's module is a context manager"
    holds.expect("device()", do)


@pytest.mark.needs("indexed_devices")
def test_device_with_an_index_keeps_it(accelerator: DeepSpeedAccelerator) -> None:
    """`device(i)` is the torch.device of that index, and `device_name(i)` its name, whichever is current."""
    holds, name = Holds(), accelerator.device_name()
    for index in (0, 1):
        holds.equal(f"device({index})", accelerator.device(index), torch.device(name, index))
        holds.equal(f"device_name({index})", accelerator.device_name(index), f"{name}:{index}")
        holds.equal("device_name, by keyword", accelerator.device_name(device_index=index), f"{name}:{index}")
    holds.expect("a device with an index", "return the type and the index; 0 is an index too")


@pytest.mark.tier("device")
def test_device_is_available(accelerator: DeepSpeedAccelerator) -> None:
    """Where there is a device, `is_available()` is True."""
    what = f"is_available() with a device_count() of {accelerator.device_count()}"
    expect_equal(what, bool(accelerator.is_available()), True, "ask the runtime the same question in both")


@pytest.mark.tier("device")
def test_current_device_name_is_that_of_the_current_device(accelerator: DeepSpeedAccelerator) -> None:
    """`current_device_name()` is `device_name(current_device())`, or the name of the device that tensors are on."""
    found, current, holds = accelerator.current_device_name(), accelerator.current_device(), Holds()
    wanted = {accelerator.device_name(current), str(_place(accelerator, current))}
    holds[f"{found!r} is one of {sorted(wanted)}"] = found in wanted
    holds.expect("current_device_name()", "derive it from current_device()")


@pytest.mark.tier("device")
def test_current_device_can_be_set(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """`set_device` takes 0, and `current_device_name()`, as torch's own do: ZeRO-3 calls it so.

    It raises RuntimeError for an index that there is no device for.
    """
    holds = Holds()
    accelerator.set_device(0)
    holds.equal("the current device after set_device(0)", accelerator.current_device(), 0)
    name: Any = accelerator.current_device_name()
    holds.equal(f"set_device({name!r})", outcome(lambda: accelerator.set_device(name)), None)
    holds.equal("the current device after it", accelerator.current_device(), 0)
    if "indexed_devices" not in traits:
        count = accelerator.device_count()
        holds.raises(RuntimeError, f"set_device({count})", lambda: accelerator.set_device(count))
    do = "take an index, a torch.device or its name, and let the runtime's error through"
    holds.expect("set_device()", do)


@pytest.mark.tier("device")
def test_synchronize_takes_each_form(accelerator: DeepSpeedAccelerator) -> None:
    """`synchronize` takes nothing, None or an index, and returns None when the work is done."""
    holds = Holds()
    holds.equal("synchronize()", accelerator.synchronize(), None)
    holds.equal("synchronize(None)", accelerator.synchronize(None), None)
    index = accelerator.current_device()
    holds.equal(f"synchronize({index})", accelerator.synchronize(device_index=index), None)
    holds.expect("synchronize()", "wait inside, and return nothing")


def test_setting_the_current_device_changes_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """`set_device(current_device())` leaves the current device, in a rank that a launcher has started, too."""
    holds = Holds()
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        accelerator = target.construct()
        before = accelerator.current_device()
        accelerator.set_device(before)
        holds.equal(f"the current device, with LOCAL_RANK={rank}", accelerator.current_device(), before)
    holds.expect("set_device(current_device())", "keep the index that set_device() is given")


@two_devices
@pytest.mark.parametrize("name", ["initial_seed", "current_device", "current_device_name"])
def test_answer_is_of_the_current_device(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """Methods without an index are about the device that is current now, not about the first one or the first asked."""
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
    expect_equal(f"{name}() while 0, 1, 0 were current", found, wanted, "ask the runtime at each call")


@two_devices
@pytest.mark.parametrize("name", needs.methods(CONSTRUCTORS))
def test_constructor_uses_the_current_device(
    accelerator: DeepSpeedAccelerator, second: int, name: str
) -> None:
    """`XTensor(data)` is on the device that is current, as `torch.empty(device=device())` is.

    `on_accelerator` is True for tensors of each device of the type, whichever is current; of the host's it stays.
    """
    holds, made, elsewhere = Holds(), list[Any](), accelerator.on_accelerator(torch.ones(2))
    for current in (second, 0):
        accelerator.set_device(current)
        made.append(getattr(accelerator, name)([1, 0]))
        holds.equal(f"{name}() while {current} is current", made[-1].device, _place(accelerator, current))
        found = [accelerator.on_accelerator(tensor) for tensor in (*made, torch.ones(2))]
        what = f"on_accelerator() of all, and of the host's, while {current} is current"
        holds.equal(what, found, [True] * len(made) + [elsewhere])
    holds.expect(f"{name}()", "construct with device=device(), and compare the type of a tensor's device")


@two_devices
@pytest.mark.parametrize("where", ["here", "in a thread"])
@pytest.mark.parametrize("form", ["by index", "by name", "by device", "by keyword"])
def test_device_that_is_set_gets_the_tensors(
    accelerator: DeepSpeedAccelerator, second: int, form: str, where: str
) -> None:
    """After `set_device` in each form new tensors are on that device, also in a thread that has used none before.

    It counts if the same device was chosen before, and another thread or object has chosen another one since.
    """

    choose_device: Any = accelerator.set_device
    setters: dict[str, Callable[[Any], None]] = {
        "by index": choose_device,
        "by name": lambda index: choose_device(accelerator.device_name(index)),
        "by device": lambda index: choose_device(accelerator.device(index)),
        "by keyword": lambda index: choose_device(device_index=index),
    }

    def choose() -> list[Any]:
        found = []
        for index in chosen:
            other.set_device(second - index)
            setters[form](index)
            found.append((accelerator.current_device(), _place(accelerator)))
        return found

    chosen, other = (second, second, 0, second), type(accelerator)()
    setters[form](second)
    found = choose() if where == "here" else _in_a_thread(choose)
    wanted = [(index, _place(accelerator, index)) for index in chosen]
    holds = Holds()
    holds.equal("current_device() after 1, 1, 0, 1 were chosen", [each[0] for each in found], [*chosen])
    if len({place for _, place in wanted}) > 1:
        holds.equal("current_device() and the device of a new tensor", found, wanted)
    holds.expect(f"set_device() {form}, {where}", _PASS_ON)


@two_devices
@pytest.mark.parametrize("wrong", [None, 1.5, "meta", "no device", 99, [1]], ids=repr)
def test_set_device_with_no_device_changes_nothing(
    accelerator: DeepSpeedAccelerator, second: int, wrong: Any
) -> None:
    """A name of no device of this type leaves the current device as it is, with an exception or without."""
    holds = Holds()
    for current in (0, second):
        accelerator.set_device(current)
        outcome(lambda: accelerator.set_device(wrong))
        holds.equal(f"current_device() after set_device({wrong!r})", accelerator.current_device(), current)
    holds.expect("set_device() of no device", "pass the argument on to the runtime as it is")


@two_devices
def test_each_thread_has_its_current_device(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """A device that another thread makes current is not the current one of this thread."""
    accelerator.set_device(0)
    _in_a_thread(lambda: accelerator.set_device(second))
    what = "current_device() after another thread chose device 1"
    do = "keep it in the runtime, for each thread"
    expect_equal(what, accelerator.current_device(), 0, do)


@two_devices
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
    what = "current devices after set_device(), count, availability in a job of ranks"
    expect_equal(what, answers(), before, "ask the runtime: the program that starts ranks calls set_device()")


#: Calls without an index, in addition to those that are indexed_methods.
_WITHOUT_INDEX: dict[str, Callable[[DeepSpeedAccelerator], object]] = {
    "manual_seed": lambda accelerator: accelerator.manual_seed(3),
    "manual_seed_all": lambda accelerator: accelerator.manual_seed_all(3),
    "Stream": lambda accelerator: accelerator.Stream and accelerator.Stream(),
    "Event": lambda accelerator: accelerator.Event and accelerator.Event(),
    "lazy_call": lambda accelerator: accelerator.lazy_call(lambda: None),
    "range_push": lambda accelerator: [accelerator.range_push("step"), accelerator.range_pop()],
    "pin_memory": lambda accelerator: accelerator.pin_memory(torch.ones(4)),
    "on_accelerator": lambda accelerator: accelerator.on_accelerator(torch.ones(4)),
    **{
        name: methodcaller(name)
        for name in (
            "initial_seed", "empty_cache", "is_available", "device_count", "supported_dtypes", "create_graph",
        )
    },
}  # fmt: skip


@two_devices
@pytest.mark.parametrize("name", [*(n for n in indexed_methods() if n != "set_device"), *_WITHOUT_INDEX])
def test_current_device_stays(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """A call leaves the current device as it is: with any index, also one that is refused, and on all devices."""
    holds = Holds()
    indices = (0, second, accelerator.device_count(), accelerator.device_name(second))
    for current in (second, 0):
        for index in indices:
            accelerator.set_device(current)
            if name in _WITHOUT_INDEX:
                _WITHOUT_INDEX[name](accelerator)
            else:
                with suppress(Exception):  # whether it is refused is another check's subject
                    call(accelerator, name, index)
            holds.equal(f"current_device() after {name}({index!r})", accelerator.current_device(), current)
    holds.expect(f"{name}()", "use a device by its index, or in a context that restores the former one")
