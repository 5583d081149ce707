# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What TorchDeviceAccelerator makes of a device module, beside what the conformance suite shows; all can change."""

import inspect

import pytest
import torch

import accel_core
from accel_core import DeepSpeedAccelerator, TorchDeviceAccelerator


def test_memory_figures_are_bytes_of_the_device_asked_for(toy: TorchDeviceAccelerator) -> None:
    assert (toy.total_memory(1), toy.total_memory()) == (1001, 1000)
    assert toy.available_memory(1) == 501 + (31 - 11)  # free, and what the allocator holds unused
    assert toy.memory_stats(1) == {"allocated_bytes.all.current": 11}


def test_dtypes_are_listed_as_the_device_supports_them(
    toy: TorchDeviceAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    monkeypatch.setattr(type(toy), "is_fp16_supported", lambda self: False)
    assert toy.supported_dtypes() == [torch.float32, torch.bfloat16]


def test_the_environment_of_a_rank_gets_its_devices(toy: TorchDeviceAccelerator) -> None:
    environment = {"KEEP": "1"}
    toy.set_visible_devices_envs(environment, [1, "GPU-5a"])
    assert environment == {"KEEP": "1", "TOY_VISIBLE_DEVICES": "1,GPU-5a"}


METHODS = sorted(name for name, member in vars(TorchDeviceAccelerator).items()
                 if inspect.isfunction(member) and not name.startswith("_"))  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_overridden_by_a_vendor(toy: TorchDeviceAccelerator, name: str) -> None:
    vendor = type("Vendor", (type(toy),), {name: lambda self, *args, **kwargs: "the vendor's answer"})
    assert getattr(vendor(), name)() == "the vendor's answer"


def test_nothing_abstract_is_left_but_the_vendors_own_variable() -> None:
    assert TorchDeviceAccelerator.__abstractmethods__ == {"visible_devices_envs"}
    assert issubclass(TorchDeviceAccelerator, DeepSpeedAccelerator)


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
