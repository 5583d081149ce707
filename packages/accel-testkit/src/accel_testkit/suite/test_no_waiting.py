# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""No waiting: what queues work, or only asks, returns while the device is still at work.

A simulated device shows it for certain: with late copies nothing arrives until somebody waits. On a real one the work
may be done by then, so there a copy that has arrived proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_sim import current
from accel_testkit.suite.expect import expect
from accel_testkit.suite.op_steps import STEPS
from accel_testkit.suite.witness import Witness, late_copies

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("pinned_memory")]

Calls = dict[str, Callable[[DeepSpeedAccelerator], object]]


def _in_a_stream(accelerator: DeepSpeedAccelerator) -> None:
    with accelerator.stream(accelerator.Stream()):
        pass


def _ranged(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.range_push("step")
    accelerator.range_pop()


_ASKING: Calls = {
    "range_push(), range_pop()": _ranged,
    "current_device()": lambda accelerator: accelerator.current_device(),
    "current_device_name()": lambda accelerator: accelerator.current_device_name(),
    "device_count()": lambda accelerator: accelerator.device_count(),
    "set_device() of the current one": lambda accelerator: accelerator.set_device(
        accelerator.current_device()
    ),
    "on_accelerator()": lambda accelerator: accelerator.on_accelerator(torch.ones(1)),
    "is_pinned()": lambda accelerator: accelerator.is_pinned(torch.ones(1)),
    "memory_allocated()": lambda accelerator: accelerator.memory_allocated(),
    "max_memory_allocated()": lambda accelerator: accelerator.max_memory_allocated(),
    "memory_reserved()": lambda accelerator: accelerator.memory_reserved(),
    "initial_seed()": lambda accelerator: accelerator.initial_seed(),
    "default_generator()": lambda accelerator: accelerator.default_generator(0),
}
_QUEUEING: Calls = {
    "stream(s), entered and left": _in_a_stream,
    "current_stream()": lambda accelerator: accelerator.current_stream(),
    "default_stream()": lambda accelerator: accelerator.default_stream(),
    "event.record()": lambda accelerator: accelerator.Event().record(),
    "event.record(stream)": lambda accelerator: accelerator.Event().record(accelerator.current_stream()),
    "stream.record_event()": lambda accelerator: accelerator.current_stream().record_event(),
    "event.wait() of another stream": lambda accelerator: _wait(accelerator, "event.wait()"),
    "event.wait(stream)": lambda accelerator: _wait(accelerator, "event.wait(stream)"),
    "stream.wait_event(event)": lambda accelerator: _wait(accelerator, "stream.wait_event(event)"),
    "stream.wait_stream(other)": lambda accelerator: accelerator.Stream().wait_stream(
        accelerator.current_stream()
    ),
}


def _wait(accelerator: DeepSpeedAccelerator, how: str) -> None:
    """Make another stream wait for the current one."""
    event, other = accelerator.Event(), accelerator.Stream()
    event.record()
    if how == "event.wait(stream)":
        event.wait(other)
    elif how == "stream.wait_event(event)":
        other.wait_event(event)
    else:
        with accelerator.stream(other):
            event.wait()


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    with late_copies():
        yield


def _expect_in_flight(accelerator: DeepSpeedAccelerator, what: str, call: Callable[[], object]) -> None:
    """Fail if a copy that is in flight before the call has arrived after it."""
    if current() is None:
        call()
        return
    unwaited, witness = Witness(accelerator), Witness(accelerator)
    unwaited.read()
    if unwaited.has_arrived():  # nothing is in flight on this device
        call()
        return
    accelerator.synchronize()
    witness.read()
    call()
    arrived = witness.has_arrived()
    accelerator.synchronize()
    expect(
        not arrived,
        f"{what} waits for the device",
        found="a copy that was in flight before the call has arrived after it",
        expected="a call that returns at once, so that the host prepares further work meanwhile",
        do="queue the work, or ask, without synchronizing; only synchronize() and reading values wait",
    )


@pytest.mark.parametrize("name", _ASKING)
def test_asking_does_not_wait(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A question, and a mark for a profiler, waits for no work."""
    _expect_in_flight(accelerator, name, lambda: _ASKING[name](accelerator))


@pytest.mark.needs("streams", "events")
@pytest.mark.parametrize("name", _QUEUEING)
def test_queueing_does_not_wait(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Streams and events order work on the device; the host goes on."""
    _expect_in_flight(accelerator, name, lambda: _QUEUEING[name](accelerator))


@pytest.mark.needs("graphs")
def test_replay_does_not_wait(accelerator: DeepSpeedAccelerator) -> None:
    """`replay_graph` starts the work of a graph, and returns."""
    source = torch.ones(4, device=accelerator.device())
    source.add_(1)  # once outside, as runtimes ask for
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        source.add_(1)
    _expect_in_flight(accelerator, "replay_graph()", lambda: accelerator.replay_graph(graph))


_FUSED = [pytest.param(name, marks=pytest.mark.needs(name)) for name, step in STEPS.items() if step.on_device]


@pytest.mark.parametrize("name", _FUSED)
def test_step_does_not_wait(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A step of an optimizer op on the device is queued; Lamb's ratio is read later, if at all."""
    step, builder = STEPS[name], accelerator.create_op_builder(name)
    if not builder.is_compatible():
        return
    op: Any = builder.load()
    values = {**step.schedule()[0], **next(iter(step.variants.values()))}
    lists = [[torch.ones(33, device=accelerator.device())] for _ in range(2 + step.states)]
    flag = [torch.zeros(1, dtype=torch.int32, device=accelerator.device())] if step.many else []
    step.call(op, lists, values, *flag)  # what is compiled or tried at the first call
    _expect_in_flight(accelerator, f"{step.function} of {name}", lambda: step.call(op, lists, values, *flag))
