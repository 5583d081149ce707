# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Events: marks in the device's work, which tell when it is done and how long it took."""

from __future__ import annotations

import time

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, factor

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("events")]


def test_event_is_done_once_its_work_is(accelerator: DeepSpeedAccelerator) -> None:
    """After `event.record()` and `event.synchronize()`, `event.query()` is True."""
    event = accelerator.Event()
    torch.ones(8, device=accelerator.device()).sum()
    event.record()
    event.synchronize()
    expect(
        event.query() is True,
        "a synchronized event is not done",
        found=f"query() is {event.query()!r}",
        expected="True",
        do="offer the runtime's own Event class",
    )


def test_events_tell_milliseconds(accelerator: DeepSpeedAccelerator) -> None:
    """`start.elapsed_time(end)` of two events with enable_timing=True is the time between them in ms."""
    start, end = (accelerator.Event(enable_timing=True) for _ in range(2))
    began = time.perf_counter()
    start.record()
    time.sleep(0.02)
    end.record()
    end.synchronize()
    most = 1000 * (time.perf_counter() - began)
    found = start.elapsed_time(end)
    unit = factor(found, most) if isinstance(found, float) else ""
    expect(
        isinstance(found, float) and 10.0 <= found <= most * 1.1 + 1.0,
        "elapsed_time() does not tell milliseconds",
        found=f"{found!r}{f'; {unit}' if unit else ''}",
        expected=f"between 10.0 and the {most:.1f} ms that the host counted",
        do="convert to milliseconds; where events cannot tell, use_host_timers() is True",
    )


def test_each_event_is_its_own(accelerator: DeepSpeedAccelerator) -> None:
    """Of many events that are in use none is another: DeepSpeed keeps one for each bucket and timer."""
    events = [accelerator.Event() for _ in range(64)]
    for event in events:
        event.record()
    distinct = len({id(event) for event in events})
    expect(
        distinct == len(events),
        "events are given out again while they are in use",
        found=f"{distinct} objects",
        expected=f"{len(events)}",
        do="make a new one at each call",
    )
