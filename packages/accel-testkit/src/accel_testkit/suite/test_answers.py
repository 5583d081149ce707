# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Answers: the same when asked again, through a second object, and after a failed setting."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import expect, fail
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("device")

#: How far two readings of the host's memory may be apart, in bytes.
_NOISE = 16 << 20
#: What is asked without an argument, and has to be answered alike at any time and by each object of the class.
QUESTIONS = (
    "build_extension",
    "communication_backend_name",
    "communication_backend_version",
    "create_graph",
    "current_device",
    "current_device_name",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_name",
    "export_envs",
    "get_compile_backend",
    "get_rng_state",
    "handles_memory_backpressure",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_fp16_supported",
    "is_fp64_supported",
    "is_synchronized_device",
    "is_triton_supported",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "available_memory",
    "op_builder_dir",
    "pin_memory_alignment",
    "prefer_triton_grouped_mm",
    "random",
    "resolves_data_dependency",
    "supported_dtypes",
    "total_memory",
    "use_host_timers",
    "visible_devices_envs",
)
ATTRIBUTES = ("Event", "Stream", "supports_nvtx_domain", "torch_pins_host_memory")
CONSTRUCTORS = {
    "BFloat16Tensor": "bf16",
    "ByteTensor": "",
    "DoubleTensor": "fp64",
    "FloatTensor": "",
    "HalfTensor": "",
    "IntTensor": "",
    "LongTensor": "",
}
#: What is answered with an object that the caller keeps, and might change.
KEPT = ("export_envs", "get_rng_state", "memory_stats", "supported_dtypes", "visible_devices_envs")


@pytest.fixture
def last_device(accelerator: DeepSpeedAccelerator, traits: Traits) -> Iterator[int]:
    """The last device is current in the test, so that an answer about the first one is another one."""
    last = 0 if "indexed_devices" in traits else accelerator.device_count() - 1
    accelerator.set_device(last)
    yield last
    accelerator.set_device(0)


def _asked(accelerator: DeepSpeedAccelerator, name: str) -> Any:
    if name in CONSTRUCTORS:
        tensor = getattr(accelerator, name)([1, 2])
        return tensor.dtype, tensor.device, tensor.tolist()
    answer = getattr(accelerator, name)
    if name in ATTRIBUTES:
        return answer
    answer = answer()
    if isinstance(answer, torch.Tensor):
        return answer.tolist()
    if name == "create_graph":
        return type(answer)
    return sorted(answer) if name == "memory_stats" else answer


def _alike(name: str, one: Any, other: Any) -> bool:
    if "memory" in name and type(one) is int and type(other) is int:
        return abs(one - other) < _NOISE
    return bool(one == other)


_ASKED = [
    pytest.param(name, marks=[pytest.mark.needs(trait, name)] if (trait := CONSTRUCTORS.get(name)) else [])
    for name in (*QUESTIONS, *ATTRIBUTES, *CONSTRUCTORS)
]


@pytest.mark.usefixtures("last_device")
@pytest.mark.parametrize("name", _ASKED)
def test_answer_stays(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Asked again at once, the accelerator answers the same: asking changes nothing."""
    found = [_asked(accelerator, name) for _ in range(3)]
    expect(
        _alike(name, found[0], found[1]) and _alike(name, found[1], found[2]),
        f"{name} answers otherwise when asked again",
        found="; ".join(f"{answer!r:.200}" for answer in found),
        expected="three equal answers",
        do="answer from the runtime, and change nothing",
    )


@pytest.mark.parametrize("name", _ASKED)
def test_second_object_answers_alike(
    accelerator: DeepSpeedAccelerator, target: Target, traits: Traits, last_device: int, name: str
) -> None:
    """A second object of the class answers the same: devices and their state are the runtime's, not the object's."""
    again = target.construct()
    if "indexed_devices" in traits:  # the index of such a type is no device, and may be the object's
        again.set_device(last_device)
    found = _asked(accelerator, name), _asked(again, name)
    expect(
        _alike(name, *found),
        f"two objects of the class answer {name} differently",
        found=f"{found[0]!r:.300} and {found[1]!r:.300}",
        expected="equal answers",
        do="keep no state in the object that the runtime has",
    )


@pytest.mark.parametrize("name", KEPT)
def test_answer_is_the_caller_s_own(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A caller may change the list, dict or tensor that it got; the next answer is as before."""
    answer = getattr(accelerator, name)()
    before = copy.deepcopy(_asked(accelerator, name))
    if isinstance(answer, torch.Tensor):
        answer.zero_()
    else:
        answer.clear()
    after = _asked(accelerator, name)
    expect(
        before == after,
        f"what {name}() returned is its own state",
        found=f"{after!r:.200} once a caller had emptied the last answer",
        expected=f"{before!r:.200}",
        do="return a new object at each call",
    )


_FAILING: dict[str, tuple[str, Callable[[DeepSpeedAccelerator], Any]]] = {
    "set_device": ("current_device", lambda acc: acc.set_device("no device")),  # type: ignore[arg-type]
    "set_rng_state": ("get_rng_state", lambda acc: acc.set_rng_state(torch.zeros(3, dtype=torch.uint8))),
    "set_compile_backend": ("get_compile_backend", lambda acc: acc.set_compile_backend("no-such-backend")),
}


@pytest.mark.usefixtures("last_device")
@pytest.mark.parametrize("name", _FAILING)
def test_setting_that_fails_changes_nothing(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """After a setter has refused a value, the former one is in use, and the setter works."""
    question, setting = _FAILING[name]
    before = _asked(accelerator, question)
    try:
        setting(accelerator)
    except Exception:  # that it refuses the value is another check's subject
        pass
    after = _asked(accelerator, question)
    expect(
        before == after,
        f"{name}() changes something although it is given nonsense",
        found=f"{question}() is {after!r:.200}",
        expected=f"{before!r:.200}, as before",
        do="check the value before it is set",
    )


def test_each_compile_backend_can_be_set_again(accelerator: DeepSpeedAccelerator) -> None:
    """`set_compile_backend` takes each registered name in turn, also the former one again."""
    former = accelerator.get_compile_backend()
    names = [*sorted(torch._dynamo.list_backends(exclude_tags=()))[:3], "eager", "aot_eager", "eager"]
    found = []
    for name in names:
        try:
            accelerator.set_compile_backend(name)
        except ValueError as error:
            fail(
                "set_compile_backend() refuses a registered backend",
                found=f"{name!r}: {error}",
                expected="every name of torch._dynamo.list_backends(exclude_tags=())",
                do="compare with that list at each call",
            )
        found.append(accelerator.get_compile_backend())
    accelerator.set_compile_backend(former)
    expect(
        [*found, accelerator.get_compile_backend()] == [*names, former],
        "set_compile_backend() does not set each backend in turn",
        found=repr(found),
        expected=repr(names),
        do="keep the last name, and return it from get_compile_backend()",
    )
