# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams: the order of device work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("streams")]


@pytest.fixture
def stream(accelerator: DeepSpeedAccelerator) -> Any:
    """A stream of its own on the current device."""
    return accelerator.Stream()


def test_current_stream_is_the_default_at_first(accelerator: DeepSpeedAccelerator) -> None:
    """`current_stream()` is `default_stream()` as long as nobody chose another, by index too."""
    index = accelerator.current_device()
    pairs = {
        "current_stream() and default_stream()": (accelerator.current_stream(), accelerator.default_stream()),
        f"current_stream({index}) and current_stream()": (
            accelerator.current_stream(index),
            accelerator.current_stream(),
        ),
    }
    different = [name for name, (one, other) in pairs.items() if one is None or one != other]
    expect(
        not different,
        "streams that should be the same differ",
        found="; ".join(different),
        expected="equal streams before any stream is chosen",
        do="return the runtime's streams, without making new ones",
    )


def test_chosen_stream_is_current_inside(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Inside `stream(s)` the current stream is s, and after it the former one."""
    outside = accelerator.current_stream()
    with accelerator.stream(stream):
        inside = accelerator.current_stream()
    after = accelerator.current_stream()
    expect(
        (inside, after) == (stream, outside),
        "stream(s) does not choose s for its block",
        found=f"inside {inside!r}, after it {after!r}",
        expected=f"inside {stream!r}, after it {outside!r}",
        do="return the runtime's stream context",
    )


@pytest.mark.needs("default_stream")
def test_default_stream_stays(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Inside `stream(s)` the default stream is what it was."""
    outside = accelerator.default_stream()
    with accelerator.stream(stream):
        inside = accelerator.default_stream()
    expect(
        inside == outside != stream,
        "default_stream() changes with the current stream",
        found=f"{inside!r}, before {outside!r}",
        expected="one default stream a device",
        do="return the runtime's default stream, not its current one",
    )


def test_no_stream_leaves_the_stream(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """`stream(None)` is a context that changes nothing."""
    with accelerator.stream(stream), accelerator.stream(None):
        inside = accelerator.current_stream()
    expect(
        inside == stream,
        "stream(None) changes the current stream",
        found=repr(inside),
        expected=repr(stream),
        do="return a context that does nothing for None",
    )


def test_stream_is_left_by_an_exception(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """After a block that an exception ended the current stream is the former one, and the exception is passed on."""
    outside = accelerator.current_stream()
    passed_on = False
    try:
        with accelerator.stream(stream):
            raise RuntimeError("the work fails")
    except RuntimeError:
        passed_on = True
    found = accelerator.current_stream()
    accelerator.stream(outside).__enter__()
    expect(
        passed_on and found == outside,
        "stream(s) does not clean up after an exception",
        found=f"{found!r} is current; the exception was {'passed on' if passed_on else 'lost'}",
        expected=f"{outside!r} and the exception",
        do="return the runtime's stream context, or restore the stream in a finally clause",
    )


def test_blocks_nest(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Each of three nested blocks chooses its stream, also one that is in use, and gives back the one around it."""
    other, outside = accelerator.Stream(), accelerator.current_stream()
    found = []
    for inner in (other, stream):
        with accelerator.stream(stream):
            with accelerator.stream(inner):
                found.append(accelerator.current_stream() == inner)
                with accelerator.stream(stream):
                    found.append(accelerator.current_stream() == stream)
                found.append(accelerator.current_stream() == inner)
            found.append(accelerator.current_stream() == stream)
        found.append(accelerator.current_stream() == outside)
    expect(
        all(found),
        "nested blocks of stream(s) lose the stream around them",
        found=f"right in the second block, the third, after it, after the second, after the first, twice: {found}",
        expected="the stream of the block, then that of the block around it",
        do="keep the former stream for each block",
    )


def test_stream_is_chosen_for_one_thread(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Another thread's current stream is the default one, inside a block of this thread too."""

    def elsewhere() -> bool:
        return bool(accelerator.current_stream() == accelerator.default_stream())

    with ThreadPoolExecutor(1) as threads, accelerator.stream(stream):
        found = threads.submit(elsewhere).result()
    expect(
        found,
        "stream(s) chooses the stream of other threads too",
        found="the current stream of a new thread is not the default one",
        expected="each thread with its own current stream",
        do="return the runtime's stream context",
    )


def test_streams_wait_for_each_other(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """Work on a stream comes after the work it waited for: `wait_stream`, `record_event` with `wait_event`."""
    source = torch.arange(4.0, device=accelerator.device())
    stream.wait_stream(accelerator.current_stream())
    with accelerator.stream(stream):
        doubled = source * 2
    event = stream.record_event()
    accelerator.current_stream().wait_event(event)
    result = doubled + 1
    accelerator.synchronize()
    expect(
        result.tolist() == [1.0, 3.0, 5.0, 7.0],
        "work that waited for another stream has a wrong result",
        found=repr(result.tolist()),
        expected="[1.0, 3.0, 5.0, 7.0]",
        do="offer the runtime's own Stream class",
    )


def test_stream_can_be_waited_for(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """After `stream.synchronize()` the stream's work is done: `query()` is True."""
    with accelerator.stream(stream):
        torch.ones(8, device=accelerator.device()).sum()
    stream.synchronize()
    expect(
        stream.query() is True,
        "a synchronized stream is not done",
        found=f"query() is {stream.query()!r}",
        expected="True",
        do="offer the runtime's own Stream class",
    )


@pytest.mark.needs("record_stream")
def test_tensor_remembers_its_streams(accelerator: DeepSpeedAccelerator, stream: Any) -> None:
    """`tensor.record_stream(s)` takes the streams of `current_stream()`, so that memory is not reused too early."""
    tensor = torch.ones(8, device=accelerator.device())
    tensor.record_stream(stream)
    tensor.record_stream(accelerator.current_stream())


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_each_device_has_its_streams(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`current_stream(1)` and `default_stream(1)` are not those of device 0."""
    same = [
        name
        for name in ("current_stream", "default_stream")
        if getattr(accelerator, name)(second) == getattr(accelerator, name)(0)
    ]
    expect(
        not same,
        "two devices share a stream",
        found=f"{', '.join(same)} of device 1 equals that of device 0",
        expected="streams of the device whose index is given",
        do="pass the index on to the runtime",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_stream_of_another_device_is_left(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`stream(s)` with a stream of device 1 chooses it there; afterwards all is as before."""
    accelerator.set_device(second)
    stream = accelerator.Stream()
    accelerator.set_device(0)
    before = [accelerator.current_stream(index) for index in (0, second)]
    with accelerator.stream(stream):
        inside = accelerator.current_stream(second)
    after = [accelerator.current_stream(index) for index in (0, second)]
    found = {
        "the stream is current on its device": inside == stream,
        "the former streams are current again": after == before,
        "device 0 is current again": accelerator.current_device() == 0,
    }
    expect(
        all(found.values()),
        "a stream of another device is chosen or left wrongly",
        found=f"not so: {', '.join(name for name, held in found.items() if not held)}",
        expected=", ".join(found),
        do="return the runtime's stream context",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_stream_is_made_on_the_device_named(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`Stream(device=i)` is a stream of device i, whichever is current: DeepSpeed makes streams by index."""
    wrong = []
    for current, index in ((0, second), (second, 0), (0, 0)):
        accelerator.set_device(current)
        stream = accelerator.Stream(device=index)
        accelerator.set_device(index)
        with accelerator.stream(stream):
            if accelerator.current_stream(index) != stream:
                wrong.append(f"Stream(device={index}) with device {current} current")
    expect(
        not wrong,
        "a stream is of another device than the one named",
        found="; ".join(wrong),
        expected="a stream that can be chosen on its device",
        do="offer the runtime's own Stream class",
    )
