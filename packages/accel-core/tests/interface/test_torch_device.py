# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""TorchDeviceAccelerator answers the whole interface from a device module, and lets a vendor override any of it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core import (
    DeepSpeedAccelerator,
    NotImplementedBuilder,
    OpTable,
    Support,
    TorchDeviceAccelerator,
    Trait,
)
from accel_core.errors import AccelError, InvalidOpTable, OpNotImplemented, UnsupportedBackend


class Device:
    """A device module with two cards, in the shape of torch.npu; it remembers what it was asked."""

    Stream = torch.Stream
    Event = torch.Event

    def __init__(self) -> None:
        self.current = 0
        self.asked: list[tuple[str, Any]] = []
        self.default_generators = (torch.Generator(), torch.Generator())
        self.peaks_reset: list[int | None] = []

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self.current

    def set_device(self, index: int) -> None:
        self.current = index

    def synchronize(self, device: int | None = None) -> None:
        self.asked.append(("synchronize", device))

    def stream(self, stream: Any) -> nullcontext[Any]:
        return nullcontext(stream)

    def current_stream(self, device: int | None = None) -> str:
        return f"current of {device}"

    def default_stream(self, device: int | None = None) -> str:
        return f"default of {device}"

    def _lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback()

    def manual_seed(self, seed: int) -> None:
        self.default_generators[self.current].manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def initial_seed(self) -> int:
        return self.default_generators[self.current].initial_seed()

    def get_rng_state(self, device: int | None = None) -> torch.Tensor:
        return self.default_generators[self.current if device is None else device].get_state()

    def set_rng_state(self, state: torch.Tensor, device: int | None = None) -> None:
        self.default_generators[self.current if device is None else device].set_state(state)

    def empty_cache(self) -> None:
        self.asked.append(("empty_cache", None))

    def memory_allocated(self, device: int | None = None) -> int:
        return 10 + (device or 0)

    def max_memory_allocated(self, device: int | None = None) -> int:
        return 20 + (device or 0)

    def memory_reserved(self, device: int | None = None) -> int:
        return 30 + (device or 0)

    def max_memory_reserved(self, device: int | None = None) -> int:
        return 40 + (device or 0)

    def memory_stats(self, device: int | None = None) -> dict[str, int]:
        return {"allocated_bytes.all.current": 10 + (device or 0)}

    def reset_peak_memory_stats(self, device: int | None = None) -> None:
        self.peaks_reset.append(device)

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=1000 + device)

    def mem_get_info(self, device: int | None = None) -> tuple[int, int]:
        return (500 + (device or 0), 1000)

    def is_bf16_supported(self) -> bool:
        return True


TABLE = OpTable(
    "accel_core.op_builder",
    {
        "GoodBuilder": "toy_ops:GoodBuilder",
        "GoneBuilder": "no_such_module:X",
        "MisspeltBuilder": "no-dotted-name",
    },
)


class Toy(TorchDeviceAccelerator):
    """The least a vendor writes. The tensors of these tests live on meta: any type torch knows will do."""

    def __init__(self, device: Device | None = None) -> None:
        traits = {"FusedLambBuilder": Trait(Support.UNSUPPORTED, "the card has no square roots")}
        super().__init__("meta", collectives="gloo", ops=TABLE, traits=traits, namespace=device or Device())  # type: ignore[arg-type]

    def visible_devices_envs(self) -> list[str]:
        return ["TOY_VISIBLE_DEVICES"]


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def toy(device: Device) -> Toy:
    return Toy(device)


def test_names_and_devices_with_and_without_index(toy: Toy) -> None:
    toy.set_device(1)
    assert (toy.device_name(), toy.device_name(0), toy.current_device_name()) == ("meta", "meta:0", "meta:1")
    assert toy.device() == torch.device("meta")
    assert toy.device(1) == torch.device("meta", 1)
    assert toy.current_device() == 1
    assert type(toy.current_device()) is int


@pytest.mark.parametrize("call", ["synchronize", "current_stream", "default_stream", "memory_allocated",
                                  "max_memory_allocated", "memory_reserved", "max_memory_reserved"])  # fmt: skip
def test_the_index_is_passed_on_by_position_and_by_keyword(device: Device, toy: Toy, call: str) -> None:
    for index in (None, 0, 1):
        expected = getattr(device, call)(index)
        assert getattr(toy, call)(index) == expected
        assert getattr(toy, call)(device_index=index) == expected
    assert getattr(toy, call)() == getattr(device, call)()


def test_random_states_belong_to_their_device(toy: Toy) -> None:
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


def test_lazy_call_really_calls(toy: Toy) -> None:
    called: list[int] = []
    toy.lazy_call(lambda: called.append(1))
    assert called == [1]


def test_the_old_memory_names_answer_as_the_new_ones(device: Device, toy: Toy) -> None:
    assert toy.memory_cached(1) == toy.memory_reserved(1) == 31
    assert toy.max_memory_cached(1) == toy.max_memory_reserved(1) == 41
    toy.reset_max_memory_allocated(1)
    toy.reset_max_memory_cached(0)
    assert device.peaks_reset == [1, 0]


def test_memory_figures_are_bytes_of_the_device_asked_for(toy: Toy) -> None:
    assert (toy.total_memory(1), toy.total_memory()) == (1001, 1000)
    assert toy.available_memory(1) == 501
    assert toy.memory_stats(1) == {"allocated_bytes.all.current": 11}


def test_typed_constructors_make_tensors_on_the_device(toy: Toy) -> None:
    types = {
        "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "DoubleTensor": torch.float64,
        "FloatTensor": torch.float32, "HalfTensor": torch.float16, "IntTensor": torch.int32, "LongTensor": torch.int64,
    }  # fmt: skip
    for name, dtype in types.items():
        made = getattr(toy, name)([1, 2])
        assert (made.dtype, made.device.type, tuple(made.shape)) == (dtype, "meta", (2,))


def test_on_accelerator_tells_devices_apart(toy: Toy) -> None:
    for _ in range(2):  # the second answer comes from memory
        assert toy.on_accelerator(torch.empty(1, device="meta"))
        assert not toy.on_accelerator(torch.empty(1))


def test_dtypes_are_listed_as_the_device_supports_them(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toy.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    monkeypatch.setattr(Toy, "is_fp16_supported", lambda self: False)
    assert toy.supported_dtypes() == [torch.float32, torch.bfloat16]


def test_without_graphs_a_capture_runs_its_code(toy: Toy) -> None:
    graph = toy.create_graph()
    ran = False
    with toy.capture_to_graph(graph, pool=None, stream=None):
        ran = True
    toy.replay_graph(graph)
    assert graph is None
    assert ran
    assert not toy.is_current_stream_capturing()


def test_an_op_in_the_table_is_imported_when_it_is_asked_for(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_ops.py").write_text("class GoodBuilder:\n    NAME = 'good'\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind = toy.get_op_builder(class_name="GoodBuilder")
    monkeypatch.delitem(sys.modules, "toy_ops")
    assert kind.NAME == "good"
    assert type(toy.create_op_builder(class_name="GoodBuilder")).NAME == "good"


def test_a_missing_op_says_which_device_why_and_what_there_is(toy: Toy) -> None:
    builder = toy.create_op_builder("FusedLambBuilder")
    assert isinstance(builder, NotImplementedBuilder)
    assert (builder.name, builder.is_compatible()) == ("deepspeed_not_implemented", False)
    assert "the card has no square roots" in builder.reason
    with pytest.raises(OpNotImplemented) as caught:
        builder.load()
    for part in ("FusedLambBuilder", "meta", "the card has no square roots", "GoodBuilder"):
        assert part in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_missing_op_without_a_trait_is_answered_too(toy: Toy) -> None:
    assert toy.get_op_builder("NobodyBuilder") is toy.get_op_builder("NobodyBuilder")
    assert "NobodyBuilder" in toy.create_op_builder("NobodyBuilder").reason


@pytest.mark.parametrize(
    ("name", "target"), [("GoneBuilder", "no_such_module"), ("MisspeltBuilder", "no-dotted-name")]
)
def test_a_table_that_names_nothing_importable_is_an_error_of_its_own(
    toy: Toy, name: str, target: str
) -> None:
    with pytest.raises(InvalidOpTable, match=target):
        toy.create_op_builder(name)


def test_compile_backend_is_changed_only_to_a_registered_one(toy: Toy) -> None:
    toy.set_compile_backend("eager")
    with pytest.raises(UnsupportedBackend, match="eager"):
        toy.set_compile_backend("no_such_backend")
    assert toy.get_compile_backend() == "eager"


def test_the_environment_of_a_rank_gets_its_devices(toy: Toy) -> None:
    environment = {"KEEP": "1"}
    toy.set_visible_devices_envs(environment, [1, "GPU-5a"])
    assert environment == {"KEEP": "1", "TOY_VISIBLE_DEVICES": "1,GPU-5a"}


def test_a_synchronized_device_answers_the_questions_that_follow_from_it(
    monkeypatch: pytest.MonkeyPatch, toy: Toy
) -> None:
    questions = ("use_host_timers", "resolves_data_dependency", "handles_memory_backpressure")
    assert not any(getattr(toy, question)() for question in questions)
    monkeypatch.setattr(Toy, "is_synchronized_device", lambda self: True)
    assert all(getattr(toy, question)() for question in questions)


METHODS = sorted(name for name, member in vars(TorchDeviceAccelerator).items()
                 if inspect.isfunction(member) and not name.startswith("_"))  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_overridden_by_a_vendor(name: str) -> None:
    vendor = type("Vendor", (Toy,), {name: lambda self, *args, **kwargs: "the vendor's answer"})
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


class RaisingBuilder(NotImplementedBuilder):
    def compatibility(self) -> tuple[bool, str]:
        raise OSError("no such driver")


def test_a_compatibility_probe_that_raises_means_no_with_the_reason() -> None:
    builder = RaisingBuilder()
    assert builder.is_compatible(verbose=True) is False
    assert "OSError: no such driver" in builder.reason


def test_errors_of_the_interface_are_accel_errors() -> None:
    assert issubclass(OpNotImplemented, AccelError)
    assert issubclass(OpNotImplemented, NotImplementedError)
