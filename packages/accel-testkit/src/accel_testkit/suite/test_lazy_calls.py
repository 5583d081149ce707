# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lazy calls and absent streams: what holds for every device, with streams or without."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")


def test_lazy_call_calls(accelerator: DeepSpeedAccelerator) -> None:
    """Once the device is in use, `lazy_call(f)` calls f at once, and once."""
    torch.ones(1, device=accelerator.device())
    accelerator.synchronize()
    calls: list[str] = []
    accelerator.lazy_call(lambda: calls.append("called"))
    expect(
        calls == ["called"],
        "lazy_call() does not call",
        found=f"{len(calls)} calls",
        expected="one, at once: random states are restored through it",
        do="call back at once when the runtime is initialized, else right after",
    )


def test_lazy_calls_keep_their_order_and_errors(accelerator: DeepSpeedAccelerator) -> None:
    """Lazy calls come in the order in which they were given, and what one raises reaches its caller."""
    torch.ones(1, device=accelerator.device())
    calls: list[int] = []
    for number in range(3):
        accelerator.lazy_call(partial(calls.append, number))

    def fail() -> None:
        raise KeyError("inside")

    try:
        accelerator.lazy_call(fail)
    except KeyError:
        calls.append(3)
    expect(
        calls == [0, 1, 2, 3],
        "lazy_call() loses the order of calls, or an exception",
        found=f"calls {calls}, where 3 stands for the exception",
        expected="[0, 1, 2, 3]",
        do="call the function directly once the runtime is initialized",
    )


def test_stream_context_takes_none(accelerator: DeepSpeedAccelerator) -> None:
    """`with stream(None)` works on every device: callers do not ask whether there are streams."""
    context = accelerator.stream(None)
    expect(
        hasattr(context, "__enter__") and hasattr(context, "__exit__"),
        "stream(None) is no context",
        found=repr(context),
        expected="a context manager",
        do="return contextlib.nullcontext()",
    )
    with context:
        pass


def test_host_timers_stand_in_for_events(accelerator: DeepSpeedAccelerator) -> None:
    """Where `Event` is None the host's clock is used: `use_host_timers()` is True."""
    expect(
        accelerator.Event is not None or accelerator.use_host_timers(),
        "nothing can time work on this device",
        found="Event is None and use_host_timers() is False",
        expected="events, or use_host_timers() True",
        do="return the runtime's Event class, or True from use_host_timers()",
    )


def test_streams_are_absent_together(accelerator: DeepSpeedAccelerator) -> None:
    """`Stream` is None only on a synchronized device, and then `current_stream()` is None too."""
    absent = accelerator.Stream is None
    expect(
        not absent or (accelerator.is_synchronized_device() and accelerator.current_stream() is None),
        "a device without streams does not say that it is synchronized",
        found=f"Stream None, is_synchronized_device() {accelerator.is_synchronized_device()!r}, "
        f"current_stream() {accelerator.current_stream()!r}",
        expected="is_synchronized_device() True and current_stream() None",
        do="DeepSpeed reads these three together: answer them alike",
    )


def test_lazy_call_calls_each_time(accelerator: DeepSpeedAccelerator) -> None:
    """A function that was passed to `lazy_call` before is called again: states are restored more than once."""
    torch.ones(1, device=accelerator.device())
    calls: list[int] = []

    def callback() -> None:
        calls.append(len(calls))

    for _ in range(3):
        accelerator.lazy_call(callback)
    expect(
        calls == [0, 1, 2],
        "lazy_call() does not call a function again",
        found=f"{len(calls)} calls",
        expected="three, one for each time it was passed",
        do="keep no record of the functions that were called",
    )
