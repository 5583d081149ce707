# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Agreement: answers that contradict neither each other nor the traits."""

from __future__ import annotations

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")

#: Memory that an allocator keeps once it is free, until the cache is emptied.
_BLOCK = 96 << 20
#: How far two figures may be apart while other processes use the device, in bytes.
_NOISE = 16 << 20


def test_synchronized_device_has_no_streams(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """`is_synchronized_device()` is True exactly if there are no streams to wait for: DeepSpeed then never waits."""
    absent = accelerator.Stream is None or "record_stream" in traits
    found = accelerator.is_synchronized_device()
    expect(
        found == absent,
        "is_synchronized_device() contradicts the streams",
        found=f"is_synchronized_device() {found}, Stream {accelerator.Stream!r}",
        expected="True without a Stream class, and False with one",
        do="return False if work is queued: DeepSpeed reads results too early otherwise",
    )


@pytest.mark.parametrize(
    "name", ["use_host_timers", "resolves_data_dependency", "handles_memory_backpressure"]
)
def test_synchronized_device_leaves_nothing_to_do(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Where every operation is complete when its call returns, the three questions about its order are True."""
    found = getattr(accelerator, name)()
    expect(
        found or not accelerator.is_synchronized_device(),
        f"{name}() is False on a synchronized device",
        found="is_synchronized_device() True",
        expected="True: there is nothing in flight",
        do="return True where is_synchronized_device() is True",
    )


def test_runtime_that_waits_for_memory_orders_its_use(accelerator: DeepSpeedAccelerator) -> None:
    """`handles_memory_backpressure()` is True only with `resolves_data_dependency()`.

    A runtime can wait for memory only if it knows which work in flight uses it.
    """
    found = accelerator.handles_memory_backpressure(), accelerator.resolves_data_dependency()
    expect(
        found != (True, False),
        "handles_memory_backpressure() is True on a runtime that does not follow the use of memory",
        found="handles_memory_backpressure() True, resolves_data_dependency() False",
        expected="False: DeepSpeed then limits the work that it queues",
        do="return True only if the runtime waits for memory that queued work holds",
    )


def test_events_time_where_there_are_events(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """With events that tell time, work is not timed with the host's clock, which would wait for each step."""
    found = accelerator.use_host_timers()
    expect(
        not found or accelerator.is_synchronized_device() or "events" in traits,
        "use_host_timers() is True though there are events",
        found="True, and no trait events",
        expected="False",
        do="return False where Event has elapsed_time()",
    )


@pytest.mark.parametrize(
    "name", ["is_bf16_supported", "is_fp64_supported", "is_triton_supported"], ids=["bf16", "fp64", "triton"]
)
def test_type_that_is_not_declared_missing_is_supported(
    accelerator: DeepSpeedAccelerator, traits: Traits, name: str
) -> None:
    """bfloat16, float64 and Triton are supported, or declared missing: users read the traits."""
    trait = name.removeprefix("is_").removesuffix("_supported")
    expect(
        trait in traits or getattr(accelerator, name)() is True,
        f"{name}() denies what no trait declares missing",
        found=f"{getattr(accelerator, name)()!r}, and no trait {trait}",
        expected=f"True, or the trait {trait} with its reason",
        do="declare the trait where the device lacks it",
    )


def test_version_of_the_collectives_is_a_version(accelerator: DeepSpeedAccelerator) -> None:
    """`communication_backend_version()` is a tuple of ints, or None where it is unknown."""
    found = accelerator.communication_backend_version()
    expect(
        found is None or (type(found) is tuple and found and all(type(part) is int for part in found)),
        "communication_backend_version() is no version",
        found=repr(found),
        expected="a tuple of ints, which callers compare, or None",
        do="convert the library's version",
    )


@pytest.mark.needs("reserved_memory")
def test_cached_memory_is_available(accelerator: DeepSpeedAccelerator) -> None:
    """Memory that the allocator keeps for later is available to this process, which it serves first; and reserved."""
    device = accelerator.device(accelerator.current_device())
    if device == torch.device("cpu"):
        return  # the host gives pages of its files away at once: they count as both
    free = getattr(getattr(accelerator, "device_module", None), "mem_get_info", lambda: (0, 0))
    accelerator.empty_cache()
    before = accelerator.available_memory(), accelerator.memory_reserved(), free()[0]
    block = torch.empty(_BLOCK, dtype=torch.uint8, device=device)
    del block
    after = accelerator.available_memory(), accelerator.memory_reserved(), free()[0]
    accelerator.empty_cache()
    less, more, taken = before[0] - after[0], after[1] - before[1], before[2] - after[2]
    expect(
        abs(less) <= _NOISE and more >= taken - _NOISE,
        "available_memory() leaves out what the allocator keeps, or memory_reserved() does",
        found=f"{less} bytes less available and {more} more reserved, {taken} taken from the device, after a tensor "
        f"of {_BLOCK} has gone",
        expected="as much available as before: DeepSpeed moves to the host what it thinks does not fit",
        do="add memory_reserved() - memory_allocated() to what mem_get_info says is free",
    )
