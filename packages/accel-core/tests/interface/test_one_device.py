# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A type with one device a process, and what a device answers that lacks streams or pinned memory."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core.device import NoPinnedMemory, NoStreams, OneDeviceAccelerator
from accel_core.errors import InvalidDevice
from accel_core.op_builder import OpTable

#: Methods of which the runtime's function takes the device.
TAKE_NONE = (
    "current_stream",
    "default_stream",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
)


class Runtime(ModuleType):
    """The functions of a device module, which note the device that they were asked for."""

    def __init__(self) -> None:
        super().__init__("runtime")
        self.asked: list[tuple[Any, ...]] = []
        self.current = 0

    def current_device(self) -> int:
        return self.current

    def synchronize(self, *device: Any) -> None:
        self.asked.append(device)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        self.asked.append((device,))
        return 3, 4

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        self.asked.append((device,))
        return {}

    def get_rng_state(self, *device: Any) -> Any:
        self.asked.append(device)

    def set_rng_state(self, state: Any, *device: Any) -> None:
        self.asked.append(device)

    def __getattr__(self, name: str) -> Any:
        if name not in TAKE_NONE:
            raise AttributeError(name)
        return lambda device=None: self.asked.append((device,)) or 5


class One(OneDeviceAccelerator):
    def __init__(self) -> None:
        super().__init__("meta", collectives="gloo", ops=OpTable(__name__, {}), device_module=Runtime())

    def visible_devices_envs(self) -> list[str]:
        return ["META_VISIBLE_DEVICES"]


@pytest.fixture
def one() -> One:
    return One()


@pytest.mark.parametrize("index", [None, 0, 3])
def test_names_drop_the_index(one: One, index: int | None) -> None:
    assert one.device(index) == torch.device("meta")
    assert one.device_name(index) == "meta"
    assert one.current_device_name() == "meta:0"


CALLS: dict[str, Any] = {
    **{
        name: lambda a, i, name=name: getattr(a, name)(i)
        for name in (*TAKE_NONE, "memory_stats", "total_memory", "available_memory")
    },
    "synchronize": lambda a, i: a.synchronize(i),
    "get_rng_state": lambda a, i: a.get_rng_state(i),
    "set_rng_state": lambda a, i: a.set_rng_state(torch.empty(0), i),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_runtime_is_asked_without_an_index(one: One, name: str) -> None:
    for index in (None, 0, "meta", "meta:0", torch.device("meta"), torch.device("meta", 0)):
        CALLS[name](one, index)
    assert set(one.device_module.asked) <= {(), (None,)}
    assert one.device_module.asked


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("index", [1, "meta:1", torch.device("meta", 1)], ids=str)
def test_another_index_is_refused_before_the_runtime_is_asked(one: One, name: str, index: Any) -> None:
    with pytest.raises(InvalidDevice, match="index 1") as caught:
        CALLS[name](one, index)
    assert isinstance(caught.value, RuntimeError)
    assert one.device_module.asked == []


def test_the_current_device_may_have_another_index(one: One) -> None:
    one.device_module.current = 2
    assert one.memory_allocated(2) == 5
    with pytest.raises(InvalidDevice, match="index 0"):
        one.memory_allocated(0)


def test_memory_is_what_the_runtime_reports(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (one.available_memory(), one.total_memory()) == (3, 4)
    monkeypatch.setattr(one.device_module, "memory_reserved", lambda: 7, raising=False)
    assert one.available_memory() == 3 + 7 - 5, "the allocator holds two bytes that no tensor uses"


class Bare(NoStreams, NoPinnedMemory, One):
    @property
    def Event(self) -> None:
        return None


@pytest.fixture
def bare() -> Bare:
    return Bare()


def test_a_device_without_streams_has_nothing_to_order(bare: Bare) -> None:
    assert (bare.Stream, bare.current_stream(), bare.default_stream()) == (None, None, None)
    answers = bare.is_synchronized_device, bare.use_host_timers, bare.resolves_data_dependency
    assert [answer() for answer in answers] == [True] * 3
    with bare.stream(None) as inside:
        assert inside is None
    assert bare.lazy_call(lambda: 7) == 7


def test_pinning_gives_the_tensor_itself(bare: Bare) -> None:
    tensor = torch.ones(2, 2)
    assert bare.pin_memory(tensor) is bare.pin_memory(tensor, align_bytes=0) is tensor
    assert bare.pin_empty(3, dtype=torch.int8).shape == (3,)
    assert not bare.is_pinned(tensor)


def test_a_chosen_allocator_pins_all_the_same(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = torch.zeros(1)
    chosen = SimpleNamespace(pin=lambda *_a, **_k: pinned)
    monkeypatch.setattr(Bare, "host_pins", SimpleNamespace(active=lambda: chosen, track=lambda _bytes: None))
    assert bare.pin_memory(torch.ones(2)) is pinned
