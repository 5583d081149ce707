# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Asynchrony: what waits for the device really waits; copies that complete late show it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect
from accel_testkit.suite.witness import Witness, late_copies

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("pinned_memory")]

_streams = pytest.mark.needs("streams")
_streams_and_events = pytest.mark.needs("streams", "events")


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    with late_copies():
        yield


@pytest.fixture
def witness(accelerator: DeepSpeedAccelerator) -> Witness:
    """A witness on the current device."""
    return Witness(accelerator)


@pytest.mark.parametrize("form", ["nothing", "None", "index", "index by name"])
def test_synchronize_waits(accelerator: DeepSpeedAccelerator, witness: Witness, form: str) -> None:
    """After `synchronize` the host reads what the device has computed, in each call form."""
    index = accelerator.current_device()
    witness.read()
    arguments: dict[str, list[int | None]] = {"nothing": [], "None": [None], "index": [index]}
    if form in arguments:
        accelerator.synchronize(*arguments[form])
    else:
        accelerator.synchronize(device_index=index)
    _expect_arrived(witness, f"synchronize ({form})", "wait for the device in synchronize()")


@_streams
def test_synchronize_waits_for_every_stream(accelerator: DeepSpeedAccelerator, witness: Witness) -> None:
    """`synchronize()` waits for the streams that are not current too."""
    with accelerator.stream(accelerator.Stream()):
        witness.read()
    accelerator.synchronize()
    _expect_arrived(witness, "synchronize()", "wait for the device, not for its current stream")


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
@pytest.mark.parametrize(("current", "index"), [(0, 1), (1, 0), (1, None), (1, 1)])
def test_synchronize_waits_for_its_device(
    accelerator: DeepSpeedAccelerator, second: int, current: int, index: int | None
) -> None:
    """`synchronize(i)` waits for device i, and without an index for the current one."""
    accelerator.set_device(current)
    witness = Witness(accelerator, current if index is None else index)
    witness.read()
    accelerator.synchronize(*([] if index is None else [index]))
    _expect_arrived(
        witness,
        f"synchronize() with index {index}, device {current} current",
        "pass the index on to the runtime",
    )


def test_synchronized_device_needs_no_wait(accelerator: DeepSpeedAccelerator, witness: Witness) -> None:
    """If `is_synchronized_device()` is True, the host may read without waiting, as DeepSpeed does."""
    witness.read()
    expect(
        not accelerator.is_synchronized_device() or witness.has_arrived(),
        "is_synchronized_device() is True, but work is still in flight after the call",
        found="the host reads memory that a copy from the device has not reached",
        expected="False",
        do="return False if work is queued: DeepSpeed reads results too early otherwise",
    )


def _wait_by_event(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    event = accelerator.Event()
    event.record(side)
    event.synchronize()


def _wait_by_event_of_the_stream(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    side.record_event().synchronize()


def _wait_by_event_of_the_current_stream(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    event = accelerator.Event()
    with accelerator.stream(side):
        event.record()
    event.synchronize()


def _wait_by_stream(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    side.synchronize()


def _wait_by_current_stream(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    with accelerator.stream(side):
        accelerator.current_stream().synchronize()


_HOST_WAITS: dict[str, Callable[[DeepSpeedAccelerator, Any], None]] = {
    "event.record(stream), event.synchronize()": _wait_by_event,
    "event.record(), event.synchronize()": _wait_by_event_of_the_current_stream,
    "stream.record_event().synchronize()": _wait_by_event_of_the_stream,
    "stream.synchronize()": _wait_by_stream,
    "current_stream().synchronize()": _wait_by_current_stream,
}


@_streams_and_events
@pytest.mark.parametrize("way", _HOST_WAITS)
def test_host_waits_for_a_stream(accelerator: DeepSpeedAccelerator, witness: Witness, way: str) -> None:
    """Waiting on the host for a stream, or an event in it, waits for the work that `stream(s)` put there."""
    side = accelerator.Stream()
    with accelerator.stream(side):
        witness.read()
    _HOST_WAITS[way](accelerator, side)
    _expect_arrived(witness, way, "offer the runtime's own Stream and Event classes and its stream context")


@_streams_and_events
@pytest.mark.parametrize("name", ["current_stream", "default_stream"])
def test_host_waits_for_the_stream_in_use(
    accelerator: DeepSpeedAccelerator, witness: Witness, name: str
) -> None:
    """Work without a chosen stream is in the stream that `current_stream()` and `default_stream()` return."""
    witness.read()
    getattr(accelerator, name)().synchronize()
    _expect_arrived(
        witness, f"{name}().synchronize()", "return the runtime's stream, without making a new one"
    )


@_streams_and_events
def test_event_without_a_stream_is_of_the_current_one(
    accelerator: DeepSpeedAccelerator, witness: Witness
) -> None:
    """`event.record()` outside of `stream(s)` marks the work of the default stream."""
    witness.read()
    event = accelerator.Event()
    event.record()
    event.synchronize()
    _expect_arrived(witness, "event.synchronize()", "offer the runtime's own Event class")


def _device_wait_by_event(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    event = accelerator.Event()
    event.record(side)
    event.wait()


def _device_wait_by_event_in(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    event = accelerator.Event()
    event.record(side)
    event.wait(accelerator.current_stream())


def _device_wait_by_stream(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    accelerator.current_stream().wait_stream(side)


def _device_wait_by_event_of_the_stream(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    accelerator.current_stream().wait_event(side.record_event())


def _device_wait_by_own_event(accelerator: DeepSpeedAccelerator, side: Any) -> None:
    event = accelerator.Event()
    side.record_event(event)
    accelerator.default_stream().wait_event(event)


_DEVICE_WAITS: dict[str, Callable[[DeepSpeedAccelerator, Any], None]] = {
    "event.wait()": _device_wait_by_event,
    "event.wait(stream)": _device_wait_by_event_in,
    "stream.wait_stream(other)": _device_wait_by_stream,
    "stream.wait_event(other.record_event())": _device_wait_by_event_of_the_stream,
    "default_stream().wait_event(event)": _device_wait_by_own_event,
}


@_streams_and_events
@pytest.mark.parametrize("way", _DEVICE_WAITS)
def test_device_waits_for_a_stream(accelerator: DeepSpeedAccelerator, witness: Witness, way: str) -> None:
    """Work of the current stream that waits for another stream uses that stream's results."""
    side = accelerator.Stream()
    with accelerator.stream(side):
        witness.write()
    _DEVICE_WAITS[way](accelerator, side)
    _expect_sum(accelerator, witness, way)


@_streams_and_events
def test_event_makes_the_named_stream_wait(accelerator: DeepSpeedAccelerator, witness: Witness) -> None:
    """`event.wait(stream)` makes that stream wait, and not the current one in its place."""
    side, other, event = accelerator.Stream(), accelerator.Stream(), accelerator.Event()
    with accelerator.stream(side):
        witness.write()
    event.record(side)
    event.wait(other)
    with accelerator.stream(other):
        _expect_sum(accelerator, witness, "event.wait(stream) of a stream that is not current")


@_streams_and_events
def test_event_that_is_done_is_of_work_that_is(accelerator: DeepSpeedAccelerator, witness: Witness) -> None:
    """Where `event.query()` is True, the work before the event has arrived: DeepSpeed then frees and reads buffers."""
    side, event = accelerator.Stream(), accelerator.Event()
    with accelerator.stream(side):
        witness.read()
        event.record()
    if event.query():
        _expect_arrived(witness, "event.query() is True, which", "ask the runtime in query()")


@_streams_and_events
@pytest.mark.parametrize("waits", ["host", "device"])
def test_event_recorded_again_marks_the_later_work(
    accelerator: DeepSpeedAccelerator, witness: Witness, waits: str
) -> None:
    """An event recorded twice stands for the second place: waiting for it waits for the work between the two."""
    side, event = accelerator.Stream(), accelerator.Event()
    event.record(side)
    event.synchronize()
    with accelerator.stream(side):
        witness.write()
        witness.read()
        event.record()
    if waits == "host":
        event.synchronize()
        _expect_arrived(witness, "event.synchronize() after a second record()", "record at each call")
    else:
        event.wait()
        _expect_sum(accelerator, witness, "event.wait() after a second record()")


@_streams_and_events
def test_events_are_marks_of_their_own(accelerator: DeepSpeedAccelerator) -> None:
    """Two events in two streams, recorded and waited for in turn: each waits for its own stream's work."""
    witnesses = [Witness(accelerator) for _ in range(2)]
    events = [accelerator.Event() for _ in range(2)]
    for witness, event in zip(witnesses, events, strict=True):
        with accelerator.stream(accelerator.Stream()):
            witness.read()
            event.record()
    for number in (1, 0):
        events[number].synchronize()
        _expect_arrived(
            witnesses[number], "the synchronize() of one of two events", "keep a mark for each event"
        )


@_streams
def test_work_after_an_exception_is_in_the_former_stream(
    accelerator: DeepSpeedAccelerator, witness: Witness
) -> None:
    """Work after a `stream(s)` that an exception ended is in the stream that was current before it."""
    outside = accelerator.current_stream()
    with contextlib.suppress(RuntimeError), accelerator.stream(accelerator.Stream()):
        raise RuntimeError("the work fails")
    witness.read()
    accelerator.default_stream().synchronize()
    accelerator.stream(outside).__enter__()
    _expect_arrived(witness, "default_stream().synchronize()", "restore the stream in a finally clause")


def _expect_arrived(witness: Witness, what: str, do: str) -> None:
    expect(
        witness.has_arrived(),
        f"{what} does not wait for the device",
        found="the host reads memory that a copy from the device has not reached",
        expected="all work that was queued before is done when it returns",
        do=do,
    )


def _expect_sum(accelerator: DeepSpeedAccelerator, witness: Witness, what: str) -> None:
    total = witness.device_tensor.sum()
    accelerator.synchronize()
    expect(
        witness.sum_was_right(total),
        f"{what} does not make the current stream wait",
        found=f"a sum of {total.item()}: taken before the other stream had written",
        expected="the work of the other stream first",
        do="offer the runtime's own Stream and Event classes",
    )
