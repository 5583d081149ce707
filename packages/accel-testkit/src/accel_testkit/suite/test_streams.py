# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams, events and lazy calls: which stream is current, when work is done, how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds, expect_equal, factor
from accel_testkit.suite.needs import two_devices

pytestmark = pytest.mark.tier("device")

_streams = pytest.mark.needs("streams")
_events = pytest.mark.needs("events")
_CONTEXT = "return the runtime's stream context, or restore the stream in a finally clause"
_OWN = "offer the runtime's own Stream and Event classes"


@pytest.fixture
def stream(accelerator: DeepSpeedAccelerator) -> Iterator[Any]:
    """Its own stream on the current device; afterwards the former one is current, whatever a check has left."""
    outside = accelerator.current_stream()
    yield accelerator.Stream()
    if accelerator.current_stream() != outside:
        accelerator.stream(outside).__enter__()


@_streams
def test_current_stream_is_the_default_at_first(accelerator: DeepSpeedAccelerator) -> None:
    """`current_stream()` is `default_stream()` as long as nobody chose another, by index too."""
    holds, stream = Holds(), accelerator.current_stream()
    holds["it is a stream"] = stream is not None
    holds.equal("default_stream()", accelerator.default_stream(), stream)
    holds.equal("current_stream(i)", accelerator.current_stream(accelerator.current_device()), stream)
    holds.expect("the stream that nobody chose", "return the runtime's streams, without making new ones")


@_streams
def test_blocks_nest(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Each of nested blocks `stream(s)` chooses its stream, also one that is in use, and gives back the one around it.

    `stream(None)` changes nothing.
    """
    holds, other, outside = Holds(), accelerator.Stream(), accelerator.current_stream()
    for inner in (other, stream):
        with accelerator.stream(stream):
            holds.equal("in a block", accelerator.current_stream(), stream)
            with accelerator.stream(inner):
                holds.equal("in the block inside", accelerator.current_stream(), inner)
                with accelerator.stream(stream), accelerator.stream(None):
                    holds.equal("in the block inside that", accelerator.current_stream(), stream)
                holds.equal("after the innermost block", accelerator.current_stream(), inner)
            holds.equal("after the inner block", accelerator.current_stream(), stream)
        holds.equal("after the block", accelerator.current_stream(), outside)
    holds.expect("the current stream", f"keep the former stream for each block: {_CONTEXT}")


@_streams
@pytest.mark.needs("default_stream")
def test_default_stream_stays(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Inside `stream(s)` the default stream is what it was."""
    outside, holds = accelerator.default_stream(), Holds()
    with accelerator.stream(stream):
        holds.equal("default_stream() inside stream(s)", accelerator.default_stream(), outside)
    holds["a new stream is not the default one"] = outside != stream
    holds.expect("default_stream()", "return the runtime's default stream, not its current one")


@_streams
def test_stream_is_left_by_an_exception(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """After a block that an exception ended the current stream is the former one, and the exception is passed on."""
    outside, holds = accelerator.current_stream(), Holds()

    def fail() -> None:
        with accelerator.stream(stream):
            raise RuntimeError("the work fails")

    holds.raises(RuntimeError, "the block", fail)
    holds.equal("the stream after it", accelerator.current_stream(), outside)
    holds.expect("stream(s) and an exception", _CONTEXT)


@_streams
def test_stream_is_chosen_for_one_thread(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Another thread's current stream is the default one, inside a block of this thread too."""
    with ThreadPoolExecutor(1) as threads, accelerator.stream(stream):
        found = threads.submit(accelerator.current_stream).result()
    expect_equal("the current stream of a new thread", found, accelerator.default_stream(), _CONTEXT)


@_streams
@pytest.mark.needs("record_stream")
def test_tensor_remembers_its_streams(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """`tensor.record_stream(s)` takes the streams of `current_stream()`, so that memory is not reused too early."""
    tensor = torch.ones(8, device=accelerator.device())
    tensor.record_stream(stream)
    tensor.record_stream(accelerator.current_stream())


@_streams
@two_devices
def test_stream_is_of_the_device_named(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`Stream(device=i)` is a stream of device i, whichever is current: DeepSpeed makes streams by index.

    `stream(s)` chooses it there, with its device current or another one; afterwards all is as before.
    """
    holds = Holds()
    devices: tuple[tuple[int, int, dict[str, int]], ...] = (
        (0, second, {"device": second}),
        (second, 0, {"device": 0}),
        (0, 0, {"device": 0}),
        (second, second, {}),
    )
    for current, index, named in devices:
        accelerator.set_device(current)
        stream = accelerator.Stream(**named)
        for chosen in (index, current, 0):
            accelerator.set_device(chosen)
            before = [accelerator.current_stream(i) for i in (0, second)]
            with accelerator.stream(stream):
                what = f"Stream({named}) made with {current}, chosen with {chosen} current"
                holds.equal(what, accelerator.current_stream(index), stream)
            holds.equal("the streams after it", [accelerator.current_stream(i) for i in (0, second)], before)
            holds.equal("the current device after it", accelerator.current_device(), chosen)
    holds.expect("a stream of a device", f"{_OWN}, and its stream context")


@_events
def test_event_is_done_once_its_work_is(accelerator: DeepSpeedAccelerator) -> None:
    """After `event.record()` and `event.synchronize()`, `event.query()` is True; of many in use none is another.

    DeepSpeed keeps one for each bucket and timer.
    """
    events, holds = [accelerator.Event() for _ in range(64)], Holds()
    for event in events:
        torch.ones(8, device=accelerator.device()).sum()
        event.record()
    holds.equal("how many objects 64 events in use are", len({id(event) for event in events}), 64)
    events[-1].synchronize()
    holds.equal("query() of a synchronized event", events[-1].query(), True)
    holds.expect("an event", f"{_OWN}; make a new one at each call")


@_events
def test_events_tell_milliseconds(accelerator: DeepSpeedAccelerator) -> None:
    """`elapsed_time()` of events with enable_timing=True is in ms, or 0 where `use_host_timers()` is True."""
    start, end = (accelerator.Event(enable_timing=True) for _ in range(2))
    began = time.perf_counter()
    start.record()
    time.sleep(0.02)
    end.record()
    end.synchronize()
    most = 1000 * (time.perf_counter() - began)
    found = start.elapsed_time(end)
    right, unit = False, ""
    if isinstance(found, float):
        right, unit = 10.0 <= found <= 2 * most, factor(found, most)
    host = accelerator.use_host_timers()
    needless = host and not accelerator.is_synchronized_device()
    what = f"{found!r} is between 10.0 and twice the {most:.1f} ms of the host {unit}"
    holds = Holds({what: not needless if right else host and found == 0})
    holds.expect("elapsed_time()", "convert to milliseconds; where events cannot, use_host_timers() is True")


def test_lazy_call_calls(accelerator: DeepSpeedAccelerator) -> None:
    """Once the device is in use, `lazy_call(f)` calls f at once and once, each time, and passes on what it raises."""
    torch.ones(1, device=accelerator.device())
    accelerator.synchronize()
    calls: list[object] = []
    holds, again = Holds(), partial(calls.append, "again")

    def fail() -> None:
        raise KeyError("inside")

    for number, callback in enumerate((again, partial(calls.append, "once"), again, again)):
        accelerator.lazy_call(callback)
        holds.equal("calls so far", len(calls), number + 1)
    holds.equal("calls in their order", calls, ["again", "once", "again", "again"])
    holds.raises(
        KeyError, "lazy_call() of a function that raises KeyError", lambda: accelerator.lazy_call(fail)
    )
    do = "call the function directly once the runtime is initialized, and keep no record"
    holds.expect("lazy_call()", do)
