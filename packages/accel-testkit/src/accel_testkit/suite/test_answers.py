# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Answers: of the right type, the same when asked again and through a second object, and without contradictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, expect, expect_equal, outcome
from accel_testkit.suite.target import Target
from accel_testkit.suite.test_tensors import CONSTRUCTORS

pytestmark = pytest.mark.tier("device")

#: How far two readings of the host's memory may be apart, in bytes.
_NOISE = 16 << 20
#: Memory that an allocator keeps once it is free, until the cache is emptied.
_BLOCK = 96 << 20
_OF_THE_HOST: dict[type, tuple[str, ...]] = {
    bool: (
        "is_available", "is_synchronized_device", "use_host_timers", "resolves_data_dependency",
        "handles_memory_backpressure", "supports_nvtx_domain",
    ),
    int: ("device_count",),
    str: ("device_name", "communication_backend_name", "get_compile_backend"),
}  # fmt: skip
_OF_A_DEVICE: dict[type, tuple[str, ...]] = {
    bool: (
        "is_bf16_supported", "is_fp16_supported", "is_fp64_supported", "is_triton_supported",
        "prefer_triton_grouped_mm", "torch_pins_host_memory",
    ),
    int: (
        "current_device", "initial_seed", "memory_allocated", "max_memory_allocated", "memory_reserved",
        "max_memory_reserved", "memory_cached", "max_memory_cached", "total_memory", "available_memory",
    ),
    str: ("current_device_name",),
}  # fmt: skip
#: What is asked without an argument, and has to be answered alike at any time and by each object of the class.
_QUESTIONS = (
    "build_extension", "communication_backend_version", "create_graph", "current_stream", "default_stream", "device",
    "export_envs", "get_rng_state", "is_current_stream_capturing", "memory_stats", "op_builder_dir",
    "pin_memory_alignment", "random", "supported_dtypes", "visible_devices_envs", "Event", "Stream",
    *(name for table in (_OF_THE_HOST, _OF_A_DEVICE) for names in table.values() for name in names),
)  # fmt: skip
_ASKED = [*_QUESTIONS, *needs.methods(CONSTRUCTORS)]
#: Questions about the order of work.
_OF_ORDER = ("use_host_timers", "resolves_data_dependency", "handles_memory_backpressure")
#: What is answered with an object that the caller keeps, and might change.
_KEPT = ("export_envs", "get_rng_state", "memory_stats", "supported_dtypes", "visible_devices_envs")


def _typed(table: dict[type, tuple[str, ...]], tier: str) -> list[Any]:
    return [
        pytest.param(name, cls, id=name, marks=pytest.mark.tier(tier))
        for cls, names in table.items()
        for name in names
    ]


@pytest.mark.parametrize(("name", "cls"), [*_typed(_OF_THE_HOST, "host"), *_typed(_OF_A_DEVICE, "device")])
def test_answer_has_its_type(accelerator: DeepSpeedAccelerator, name: str, cls: type) -> None:
    """A question is answered with True or False, a number or a text: never None, and a bool is not a number."""
    answer = getattr(accelerator, name)
    answers = [answer() if callable(answer) else answer]
    if name in _OF_A_DEVICE[int] and "memory" in name:
        answers.append(answer(0))
    for value in answers:
        what = f"{name}() has the wrong type"
        found, do = f"{value!r} ({type(value).__name__})", "return the type on every path; memory is in bytes"
        expect(type(value) is cls, what, found=found, expected=cls.__name__, do=do)


@pytest.fixture
def last_device(accelerator: DeepSpeedAccelerator, traits: Traits) -> Iterator[int]:
    """The last device is current in the test, so that an answer about the first one is another one."""
    last = 0 if "indexed_devices" in traits else accelerator.device_count() - 1
    accelerator.set_device(last)
    yield last
    accelerator.set_device(0)


def _answer(accelerator: DeepSpeedAccelerator, name: str) -> Any:
    """Return an answer as a value that can be compared."""
    answer = getattr(accelerator, name)
    if name.endswith("Tensor"):
        tensor = answer([1, 2])
        return tensor.dtype, tensor.device, tensor.tolist()
    if name in ("Event", "Stream") or isinstance(answer, bool):
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


@pytest.mark.parametrize("name", _ASKED)
def test_answer_stays(
    accelerator: DeepSpeedAccelerator, target: Target, traits: Traits, last_device: int, name: str
) -> None:
    """Asked again, and through a second object of the class, the accelerator answers the same.

    Asking changes nothing, and devices and their state are the runtime's, not the object's.
    """
    holds, second = Holds(), target.construct()
    if "indexed_devices" in traits:  # the index of such a type is not a device, and may be the object's
        second.set_device(last_device)
    first = _answer(accelerator, name)
    for who, asked in (("", accelerator), ("", accelerator), (" of a second object", second)):
        answer = _answer(asked, name)
        holds[f"{name}{who} is {answer!r:.200}, before {first!r:.200}"] = _alike(name, first, answer)
    do = "answer from the runtime, change nothing, and keep no state in the object"
    holds.expect(f"{name}, asked again", do)


@pytest.mark.parametrize("name", _KEPT)
def test_answer_is_the_caller_s_own(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A caller may change the list, dict or tensor that it got; the next answer is as before."""
    answer = getattr(accelerator, name)()
    before = copy.deepcopy(_answer(accelerator, name))
    answer.zero_() if isinstance(answer, torch.Tensor) else answer.clear()
    what = f"{name}(), once a caller has emptied the last answer,"
    expect_equal(what, _answer(accelerator, name), before, "return a new object at each call")


def test_synchronized_device_has_no_streams(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """`is_synchronized_device()` is True exactly if there are no streams to wait for: DeepSpeed then never waits.

    Where it is True, so are the three questions about the order of work. A runtime can wait for memory only if it
    knows which work in flight uses it. Without events, work is timed with the host's clock.
    """
    holds, synchronized = Holds(), accelerator.is_synchronized_device()
    absent = accelerator.Stream is None or "record_stream" in traits
    holds.equal(f"is_synchronized_device() with Stream {accelerator.Stream!r}", synchronized, absent)
    if accelerator.Stream is None:
        holds.equal("current_stream() without streams", accelerator.current_stream(), None)
    order = {name: getattr(accelerator, name)() for name in _OF_ORDER}
    holds[f"all are True on a synchronized device: {order}"] = not synchronized or all(order.values())
    holds[f"memory is waited for only with an order: {order}"] = (
        order["resolves_data_dependency"] or not order["handles_memory_backpressure"]
    )
    holds["host timers without Event"] = order["use_host_timers"] or accelerator.Event is not None
    early = "return False if work is queued: DeepSpeed reads results too early"
    streams = "return True if kernels are done when they return, or let tensors record streams"
    holds.expect("is_synchronized_device()", early if synchronized else streams)


@pytest.mark.parametrize("trait", ["bf16", "fp64", "triton"])
def test_type_that_is_not_declared_missing_is_supported(
    accelerator: DeepSpeedAccelerator, traits: Traits, trait: str
) -> None:
    """bfloat16, float64 and Triton are supported, or declared missing: users read the traits."""
    if trait not in traits:
        what, found = f"is_{trait}_supported", getattr(accelerator, f"is_{trait}_supported")()
        expect_equal(f"{what}() without a trait", found, True, "declare the trait where the device lacks it")


def test_version_of_the_collectives_is_a_version(accelerator: DeepSpeedAccelerator) -> None:
    """`communication_backend_version()` is a tuple of ints, or None where it is unknown."""
    found = accelerator.communication_backend_version()
    whole = type(found) is tuple and found and all(type(part) is int for part in found)
    holds = Holds({f"{found!r} is a tuple of ints, which callers compare, or None": found is None or whole})
    holds.expect("communication_backend_version()", "convert the library's version")


def test_each_compile_backend_can_be_set(accelerator: DeepSpeedAccelerator, target: Target) -> None:
    """`set_compile_backend` takes each registered name in turn, for this object alone, and refuses others."""
    holds, other = Holds(), target.construct()
    former, others = accelerator.get_compile_backend(), other.get_compile_backend()
    registered = torch._dynamo.list_backends(exclude_tags=())
    holds[f"the first backend, {others!r}, is registered"] = others in registered
    for name in (*sorted(registered)[:3], "eager", "aot_eager", "eager", former):
        refused = outcome(partial(accelerator.set_compile_backend, name))
        holds.equal(f"set_compile_backend({name!r})", refused, None)
        holds.equal("get_compile_backend() after it", accelerator.get_compile_backend(), name)
        holds.equal(
            f"get_compile_backend() of another object, after {name}", other.get_compile_backend(), others
        )
    unknown = "set_compile_backend('no-such-backend')"
    holds.raises(ValueError, unknown, lambda: other.set_compile_backend("no-such-backend"))
    holds.equal("get_compile_backend() after it", other.get_compile_backend(), others)
    do = "compare with torch._dynamo.list_backends(exclude_tags=()); keep the name"
    holds.expect("set_compile_backend()", do)


def _free(accelerator: Any) -> int:
    """Return the free memory of the device by the runtime; 0 if unknown."""
    try:
        return int(accelerator.device_module.mem_get_info()[0])
    except AttributeError:
        return 0


@pytest.mark.needs("reserved_memory")
def test_cached_memory_is_available(accelerator: DeepSpeedAccelerator) -> None:
    """Memory that the allocator keeps for later is available to this process, which it serves first; and reserved."""
    device = accelerator.device(accelerator.current_device())
    if device == torch.device("cpu"):
        pytest.skip("the host gives pages of its files away at once: they count as both")
    accelerator.empty_cache()
    before = accelerator.available_memory(), accelerator.memory_reserved(), _free(accelerator)
    torch.empty(_BLOCK, dtype=torch.uint8, device=device)
    after = accelerator.available_memory(), accelerator.memory_reserved(), _free(accelerator)
    accelerator.empty_cache()
    less, more, taken = before[0] - after[0], after[1] - before[1], before[2] - after[2]
    holds = Holds({f"as much available as before, {less} bytes less": abs(less) <= _NOISE})
    holds[f"{more} more reserved, {taken} taken from the device"] = more >= taken - _NOISE
    do = "add memory_reserved() - memory_allocated() to what mem_get_info says is free"
    holds.expect(f"what the allocator keeps of a tensor of {_BLOCK}", do)
