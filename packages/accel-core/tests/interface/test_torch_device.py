# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What TorchDeviceAccelerator makes of a device module, beside what the conformance suite shows; all can change."""

import inspect

import pytest

import accel_core
from accel_core import DeepSpeedAccelerator, TorchDeviceAccelerator


def test_total_memory_is_that_of_the_device_asked_for(toy: TorchDeviceAccelerator) -> None:
    assert (toy.total_memory(1), toy.total_memory()) == (1001, 1000)


def test_every_public_method_of_the_interface_says_what_it_does() -> None:
    undocumented = [
        f"{room.__name__}.{name}"
        for room in DeepSpeedAccelerator.__mro__
        if room.__module__.startswith("accel_core.interface")
        for name, member in vars(room).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and not member.__doc__
    ]
    assert undocumented == []


def test_device_index_is_current_inside_and_the_former_one_after(toy: TorchDeviceAccelerator) -> None:
    def fail() -> None:
        with accel_core.device_index(1):
            assert toy.current_device() == 1
            toy.set_device(0)
            raise KeyError

    with accel_core.using(toy):
        with accel_core.device_index(1), accel_core.device_index(0):
            assert toy.current_device() == 0
        toy.set_device(1)
        with pytest.raises(KeyError):
            fail()
        assert toy.current_device() == 1
        toy.set_device(0)
        with pytest.raises(KeyError):
            fail()
        assert toy.current_device() == 0


def test_device_index_of_none_changes_nothing(toy: TorchDeviceAccelerator) -> None:
    with accel_core.using(toy), accel_core.device_index(None):
        toy.set_device(1)
    assert toy.current_device() == 1
