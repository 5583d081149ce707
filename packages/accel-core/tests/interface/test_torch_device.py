# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""TorchDeviceAccelerator answers the whole interface from a device module, and lets a vendor override any of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import accel_core
from accel_core import DeepSpeedAccelerator, TorchDeviceAccelerator
from accel_core.errors import UnsupportedBackend


def test_names_and_devices_with_and_without_index(toy: TorchDeviceAccelerator) -> None:
    toy.set_device(1)
    assert (toy.device_name(), toy.device_name(0), toy.current_device_name()) == ("meta", "meta:0", "meta:1")
    assert toy.device() == torch.device("meta")
    assert toy.device(1) == torch.device("meta", 1)
    assert toy.current_device() == 1
    assert type(toy.current_device()) is int


@pytest.mark.parametrize("call", ["synchronize", "current_stream", "default_stream", "memory_allocated",
                                  "max_memory_allocated", "memory_reserved", "max_memory_reserved"])  # fmt: skip
def test_the_index_is_passed_on_by_position_and_by_keyword(
    device: Any, toy: TorchDeviceAccelerator, call: str
) -> None:
    for index in (None, 0, 1):
        expected = getattr(device, call)(index)
        assert getattr(toy, call)(index) == expected
        assert getattr(toy, call)(device_index=index) == expected
    assert getattr(toy, call)() == getattr(device, call)()


def test_random_states_belong_to_their_device(toy: TorchDeviceAccelerator) -> None:
    toy.manual_seed_all(7)
    before = toy.get_rng_state(1)
    torch.rand(3, generator=toy.default_generator(1))
    assert not torch.equal(toy.get_rng_state(1), before)
    toy.set_rng_state(before, 1)
    assert torch.equal(toy.get_rng_state(1), before)
    toy.set_device(1)
    assert torch.equal(toy.get_rng_state(), before)
    toy.manual_seed(9)
    assert (toy.initial_seed(), toy.default_generator(0).initial_seed()) == (9, 7)


def test_lazy_call_really_calls(toy: TorchDeviceAccelerator) -> None:
    called: list[int] = []
    toy.lazy_call(lambda: called.append(1))
    assert called == [1]


def test_the_old_memory_names_answer_as_the_new_ones(device: Any, toy: TorchDeviceAccelerator) -> None:
    assert toy.memory_cached(1) == toy.memory_reserved(1) == 31
    assert toy.max_memory_cached(1) == toy.max_memory_reserved(1) == 41
    toy.reset_max_memory_allocated(1)
    toy.reset_max_memory_cached(0)
    assert device.peaks_reset == [1, 0]


def test_memory_figures_are_bytes_of_the_device_asked_for(toy: TorchDeviceAccelerator) -> None:
    assert (toy.total_memory(1), toy.total_memory()) == (1001, 1000)
    assert toy.available_memory(1) == 501 + (31 - 11)  # free, and what the allocator holds unused
    assert toy.memory_stats(1) == {"allocated_bytes.all.current": 11}


def test_typed_constructors_make_tensors_on_the_device(toy: TorchDeviceAccelerator) -> None:
    types = {
        "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "DoubleTensor": torch.float64,
        "FloatTensor": torch.float32, "HalfTensor": torch.float16, "IntTensor": torch.int32, "LongTensor": torch.int64,
    }  # fmt: skip
    for name, dtype in types.items():
        made = getattr(toy, name)([1, 2])
        assert (made.dtype, made.device.type, tuple(made.shape)) == (dtype, "meta", (2,))


def test_on_accelerator_distinguishes_devices(toy: TorchDeviceAccelerator) -> None:
    for _ in range(2):  # the second answer comes from memory
        assert toy.on_accelerator(torch.empty(1, device="meta"))
        assert not toy.on_accelerator(torch.empty(1))


def test_dtypes_are_listed_as_the_device_supports_them(
    toy: TorchDeviceAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toy.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    monkeypatch.setattr(type(toy), "is_fp16_supported", lambda self: False)
    assert toy.supported_dtypes() == [torch.float32, torch.bfloat16]


def test_without_graphs_a_capture_runs_its_code(toy: TorchDeviceAccelerator) -> None:
    graph = toy.create_graph()
    ran = False
    with toy.capture_to_graph(graph, pool=None, stream=None):
        ran = True
    toy.replay_graph(graph)
    assert graph is None
    assert ran
    assert not toy.is_current_stream_capturing()


def test_compile_backend_is_changed_only_to_a_registered_one(toy: TorchDeviceAccelerator) -> None:
    toy.set_compile_backend("eager")
    with pytest.raises(UnsupportedBackend, match="eager"):
        toy.set_compile_backend("no_such_backend")
    assert toy.get_compile_backend() == "eager"


def test_the_environment_of_a_rank_gets_its_devices(toy: TorchDeviceAccelerator) -> None:
    environment = {"KEEP": "1"}
    toy.set_visible_devices_envs(environment, [1, "GPU-5a"])
    assert environment == {"KEEP": "1", "TOY_VISIBLE_DEVICES": "1,GPU-5a"}


def test_a_synchronized_device_answers_the_questions_that_follow_from_it(
    monkeypatch: pytest.MonkeyPatch, toy: TorchDeviceAccelerator
) -> None:
    questions = ("use_host_timers", "resolves_data_dependency", "handles_memory_backpressure")
    assert not any(getattr(toy, question)() for question in questions)
    monkeypatch.setattr(type(toy), "is_synchronized_device", lambda self: True)
    assert all(getattr(toy, question)() for question in questions)


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
