# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What TorchDeviceAccelerator makes of a device module, of several devices or one; traits, ops, core's variables."""

import inspect
import mmap
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import accel_core
from accel_core import DeepSpeedAccelerator, env
from accel_core.device import NoPinnedMemory, OneDeviceAccelerator, TorchDeviceAccelerator
from accel_core.errors import InvalidDevice, InvalidEnvironment, InvalidVendor
from accel_core.interface import PinnedMemoryInterface
from accel_core.op_builder import OpTable, names
from accel_core.vendor import Feature, Trait

#: Methods with the index of a device, and functions of the runtime that they call.
METHODS = (
    "current_stream", "default_stream", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "reset_peak_memory_stats", "memory_stats", "total_memory", "available_memory",
    "synchronize", "get_rng_state", "set_rng_state",
)  # fmt: skip


def runtime() -> Any:
    """Return a device module: what it was called with is in `method_calls`."""
    module = Mock(**{f"{name}.return_value": 5 for name in METHODS})
    module.current_device.return_value = 0
    module.set_device.side_effect = lambda index: setattr(module.current_device, "return_value", index)
    module.get_device_properties.side_effect = lambda index: SimpleNamespace(total_memory=1000 + index)
    module.mem_get_info.return_value = (3, 4)
    return module


TABLE = OpTable(
    "accel_core.op_builder",
    {
        "GoodBuilder": "toy_ops:GoodBuilder",
        "GoneBuilder": "no_such_module:X",
        "MisspeltBuilder": "no-dotted-name",
    },
)


class Toy(TorchDeviceAccelerator):
    """The least a vendor writes."""

    def __init__(self, traits: Any = ()) -> None:
        super().__init__("meta", collectives="gloo", ops=TABLE, traits=dict(traits), device_module=runtime())

    def visible_devices_envs(self) -> list[str]:
        return ["TOY_VISIBLE_DEVICES"]


@pytest.fixture
def toy() -> Toy:
    return Toy()


def test_total_memory_of_each_device(toy: Toy) -> None:
    assert (toy.total_memory(1), toy.total_memory()) == (1001, 1000)


def test_interface_is_documented() -> None:
    undocumented = [
        f"{cls.__name__}.{name}"
        for cls in DeepSpeedAccelerator.__mro__
        if cls.__module__.startswith("accel_core.interface")
        for name, member in vars(cls).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and not member.__doc__
    ]
    assert undocumented == []


def test_device_index_restores_current_device(toy: Toy) -> None:
    def fail() -> None:
        with accel_core.device_index(1):
            assert toy.current_device() == 1
            toy.set_device(0)
            raise KeyError

    with accel_core.using(toy):
        with accel_core.device_index(1), accel_core.device_index(0):
            assert toy.current_device() == 0
        for current in (1, 0):
            toy.set_device(current)
            with pytest.raises(KeyError):
                fail()
            assert toy.current_device() == current
        with accel_core.device_index(None):
            toy.set_device(1)
        assert toy.current_device() == 1


@pytest.mark.parametrize("own", [{}, {"_initialized": False, "device": torch.device}], ids=["bare", "whole"])
def test_module_gets_missing_names(monkeypatch: pytest.MonkeyPatch, own: dict[str, Any]) -> None:
    module = SimpleNamespace(get_rng_state=torch.get_rng_state, **own)
    monkeypatch.setattr(torch, "meta", module, raising=False)
    toy = Toy()
    assert module._initialized == own.get("_initialized", True)
    assert module.is_initialized()
    if own:
        assert module.device is torch.device
    else:
        with module.device(1):
            assert toy.current_device() == 1
        assert toy.current_device() == 0


class Pieces(PinnedMemoryInterface):
    """Cuts pinned memory out of larger pieces, as allocators with a cache do."""

    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        piece = torch.empty(512 + tensor.nbytes, dtype=torch.uint8)[512:]
        return piece.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def torch_is_pinned(self, tensor: Any) -> bool:
        return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_whole_pages_of_pinned_memory(dtype: torch.dtype, size: int) -> None:
    tensor = torch.arange(size).to(dtype).reshape(1, size)
    pinned = Pieces().pin_memory(tensor, align_bytes=0)
    assert pinned.data_ptr() % mmap.PAGESIZE == 0
    assert torch.equal(pinned, tensor)
    assert (pinned.dtype, pinned.shape) == (tensor.dtype, tensor.shape)


class One(OneDeviceAccelerator, Toy):
    pass


@pytest.fixture
def one() -> One:
    return One()


@pytest.mark.parametrize("index", [None, 0, 3])
def test_names_drop_the_index(one: One, index: int | None) -> None:
    assert one.device(index) == torch.device("meta")
    assert one.device_name(index) == "meta"
    assert one.current_device_name() == "meta:0"


def call(one: One, name: str, index: Any) -> None:
    getattr(one, name)(*[torch.empty(0)] * (name == "set_rng_state"), index)


def calls(one: One) -> list[Any]:
    """The arguments of the runtime's functions, but for tensors."""
    called = [call for call in one.device_module.method_calls if call[0] != "current_device"]
    return [[arg for arg in call.args if not isinstance(arg, torch.Tensor)] for call in called]


@pytest.mark.parametrize("name", METHODS)
def test_runtime_is_called_without_an_index(one: One, name: str) -> None:
    for index in (None, 0, "meta", "meta:0", torch.device("meta"), torch.device("meta", 0)):
        call(one, name, index)
    assert calls(one)
    assert all(arguments in ([], [None]) for arguments in calls(one))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("index", [1, "meta:1", torch.device("meta", 1)], ids=str)
def test_another_index_is_rejected(one: One, name: str, index: Any) -> None:
    with pytest.raises(InvalidDevice, match="index 1") as caught:
        call(one, name, index)
    assert isinstance(caught.value, RuntimeError)
    assert calls(one) == []


def test_index_of_current_device_is_accepted(one: One) -> None:
    one.set_device(2)
    assert one.memory_allocated(2) == 5
    with pytest.raises(InvalidDevice, match="index 0"):
        one.memory_allocated(0)


def test_memory_is_what_the_runtime_reports(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (one.available_memory(), one.total_memory()) == (3, 4)
    monkeypatch.setattr(one.device_module, "memory_reserved", lambda: 7)
    assert one.available_memory() == 3 + 7 - 5, "the allocator holds two bytes that no tensor uses"


def test_pin_memory_without_pinned_memory() -> None:
    bare, tensor = type("Bare", (NoPinnedMemory, One), {})(), torch.ones(2, 2)
    assert bare.pin_memory(tensor) is bare.pin_memory(tensor, align_bytes=0) is tensor


TRAIT = Trait.unsupported("the card lacks it")


@pytest.mark.parametrize("key", [*Feature, *names.UPSTREAM, *names.ONE_DEVICE, "GoodBuilder"], ids=str)
def test_feature_and_builder_can_be_missing(key: str) -> None:
    assert Toy({key: TRAIT}).traits[str(key)] is TRAIT


def test_feature_and_its_key_are_one_trait() -> None:
    traits = Toy({Feature.STREAMS: TRAIT, "events": TRAIT}).traits
    assert traits[Feature.EVENTS] is traits["streams"] is TRAIT
    assert {type(key) for key in traits} == {str}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("stream", "streams"),
        ("FusedAdam", "FusedAdamBuilder"),
        ("pinned-memory", "pinned_memory"),
        ("qqqqqqqqqqqq", ""),
    ],
)
def test_unknown_key_of_a_trait(key: str, nearest: str) -> None:
    with pytest.raises(InvalidVendor) as error:
        Toy({"graphs": TRAIT, key: TRAIT})
    assert repr(key) in error.value.message
    assert "'graphs'" not in error.value.message
    assert nearest in error.value.message
    assert ("nearest" in error.value.message) == bool(nearest)


@pytest.mark.parametrize("value", ["no streams", None, Trait], ids=repr)
def test_trait_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidVendor, match=f"values of another type: streams: {type(value).__name__};"):
        Toy({"streams": value})


def test_features_have_keys_and_sentences() -> None:
    for feature in Feature:
        assert feature.value == feature.name.lower() == f"{feature}"
        assert feature.sentence.endswith(".")


def test_builder_is_imported_when_used(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_ops.py").write_text("class GoodBuilder:\n    NAME = 'good'\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind = toy.get_op_builder(class_name="GoodBuilder")
    monkeypatch.delitem(sys.modules, "toy_ops")
    assert kind.NAME == "good"
    assert type(toy.create_op_builder(class_name="GoodBuilder")).NAME == "good"


def test_missing_op_has_a_reason(toy: Toy) -> None:
    assert TRAIT.reason in Toy({"FusedLambBuilder": TRAIT}).create_op_builder("FusedLambBuilder").reason
    assert toy.get_op_builder("NobodyBuilder") is toy.get_op_builder("NobodyBuilder")
    assert "NobodyBuilder" in toy.create_op_builder("NobodyBuilder").reason


@pytest.mark.parametrize(
    ("name", "target"), [("GoneBuilder", "no_such_module"), ("MisspeltBuilder", "no-dotted-name")]
)
def test_unimportable_builder_is_an_error(toy: Toy, name: str, target: str) -> None:
    with pytest.raises(InvalidVendor, match=target):
        toy.create_op_builder(name)


SOURCES = Path(env.__file__).parent


@pytest.mark.parametrize(
    ("values", "on"), [(("1", "true", "YES", " on "), True), (("", "0", "False", "no", "off"), False)]
)
def test_switch(monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], on: bool) -> None:
    for value in values:
        monkeypatch.setenv("ACCEL_STRICT", value)
        assert env.STRICT.on() is on
    monkeypatch.setenv("ACCEL_STRICT", "maybe")
    with pytest.raises(InvalidEnvironment, match="ACCEL_STRICT='maybe'"):
        env.STRICT.on()


def test_blanks_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_SKIP", " npu, ,mlu ")
    assert env.SKIP.names() == ("npu", "mlu")


def test_variables_are_read_in_env() -> None:
    readers = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        # activate.py looks whether one is set before it loads env, which every `import torch` would pay for.
        if path.name not in ("env.py", "activate.py")
        and re.search(r"""environ[^\n]*["'](ACCEL_|DS_ACCELERATOR)""", path.read_text())
    ]
    assert readers == []
