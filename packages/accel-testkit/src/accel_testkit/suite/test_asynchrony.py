# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Asynchrony: what waits for the device, what does not, and what orders its work; copies that complete late show it.

A simulated device shows it for certain: with late copies nothing arrives until somebody waits. On a real one the work
may be done by then: there a copy that has arrived proves nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from operator import methodcaller
from timeit import timeit
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.simulated import current
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.needs import two_devices
from accel_testkit.suite.ops import of_builder
from accel_testkit.suite.ops.optimizers import FUSED
from accel_testkit.suite.test_graphs import captured

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("pinned_memory")]

_SIZE = 1024
_VALUE = 7.0
#: Work that a real device has before each copy: products of zeros for 10 ms, as far as so many take that long.
_SECONDS, _MOST = 0.01, 40
_EDGE = 2048


def late_copies() -> AbstractContextManager[None]:
    """Inside, asynchronous copies of a simulated device complete as late as the order of work allows."""
    return device.late_copies() if (device := current()) else nullcontext()


class Witness:
    """A device tensor of one index, and page-locked memory of the host.

    `read` starts a copy to the host, `write` one from it. Both go to the current stream of the tensor's device, behind
    work that takes a while on a real device.
    """

    def __init__(self, accelerator: DeepSpeedAccelerator, index: int | None = None) -> None:
        place = accelerator.device(accelerator.current_device() if index is None else index)
        self.device_tensor = torch.zeros(_SIZE, device=place)
        self._busy = current() is None and self.device_tensor.device.type != "cpu"
        self._filled = torch.full((_SIZE,), _VALUE, device=place)
        self._operand = torch.zeros(_EDGE, _EDGE, device=place) if self._busy else self._filled
        self._source = accelerator.pin_memory(torch.full((_SIZE,), _VALUE))
        self._sink = accelerator.pin_memory(torch.zeros(_SIZE))
        # Taken before any copy: in race mode `_sink.numpy()` is an error while one is in flight.
        self._seen = self._sink.numpy()
        accelerator.synchronize()
        torch.zeros(1, device=place).item()  # whatever synchronize() does

    def read(self) -> None:
        """Start a copy from the device into the host's memory."""
        self._work()
        self._sink.copy_(self._filled, non_blocking=True)

    def write(self) -> None:
        """Start a copy from the host's memory into `device_tensor`."""
        self._work()
        self.device_tensor.copy_(self._source, non_blocking=True)

    def overwrite(self) -> None:
        """Start a fill of what `read` copies."""
        self._filled.fill_(0)

    def has_arrived(self) -> bool:
        """Return whether the host's memory holds the numbers; reading it calls no operator, which might wait."""
        return bool((self._seen == _VALUE).all())

    def sum_was_right(self, total: torch.Tensor) -> bool:
        """Return whether a sum of `device_tensor`, taken on the device, was taken after the copy."""
        return total.item() == _VALUE * _SIZE

    def _work(self) -> None:
        for _ in range(_products(self._operand.device) if self._busy else 0):
            torch.mm(self._operand, self._operand)


@cache
def _products(place: torch.device) -> int:
    """Return how many products take 10 ms on a device."""
    operand = torch.zeros(_EDGE, _EDGE, device=place)
    for _ in range(2):  # the first call may load libraries
        begin = time.perf_counter()
        torch.mm(operand, operand)[0, 0].item()
    return max(1, min(_MOST, math.ceil(_SECONDS / (time.perf_counter() - begin))))


_streams = pytest.mark.needs("streams")
_streams_and_events = pytest.mark.needs("streams", "events")
_OWN = "offer the runtime's own Stream and Event classes and its stream context"
Act = Callable[[Any, Any], object]


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    with late_copies():
        yield


@pytest.fixture
def witness(accelerator: DeepSpeedAccelerator) -> Witness:
    """A witness on the current device."""
    return Witness(accelerator)


def _expect_arrived(witness: Witness, what: str, do: str = _OWN) -> None:
    done = "a copy to the host that was queued before is done when it returns"
    Holds({done: witness.has_arrived()}).expect(f"what {what} waits for", do)


def _expect_sum(accelerator: DeepSpeedAccelerator, witness: Witness, what: str) -> None:
    total = witness.device_tensor.sum()
    accelerator.synchronize()
    order = f"a sum of {total.item()} is taken after the other stream has written"
    Holds({order: witness.sum_was_right(total)}).expect(
        f"what {what} makes the current stream wait for", _OWN
    )


def _recorded(accelerator: Any, stream: Any = None) -> Any:
    """Return an event that is recorded in a stream, or in the current one.

    It was recorded in an idle stream before: a mark stands for the second place.
    """
    event = accelerator.Event()
    event.record(accelerator.Stream())
    event.record(*([] if stream is None else [stream]))
    return event


@pytest.mark.parametrize("form", ["nothing", "None", "index", "index by name"])
def test_synchronize_waits(accelerator: DeepSpeedAccelerator, witness: Witness, form: str) -> None:
    """After `synchronize` the host reads what the device has computed, in each call form and in every stream."""
    index, other = accelerator.current_device(), Witness(accelerator)
    witness.read()
    with accelerator.stream(accelerator.Stream and accelerator.Stream()):
        other.read()
    calls: dict[str, Callable[[], object]] = {
        "nothing": accelerator.synchronize,
        "None": partial(accelerator.synchronize, None),
        "index": partial(accelerator.synchronize, index),
        "index by name": partial(accelerator.synchronize, device_index=index),
    }
    calls[form]()
    for each in (witness, other):
        _expect_arrived(each, f"synchronize ({form})", "wait for the device, not for its current stream")


@two_devices
@pytest.mark.parametrize(("current", "index"), [(0, 1), (1, 0), (1, None), (1, 1)])
def test_synchronize_waits_for_its_device(
    accelerator: DeepSpeedAccelerator, second: int, current: int, index: int | None
) -> None:
    """`synchronize(i)` waits for device i, and without an index for the current one."""
    accelerator.set_device(current)
    witness = Witness(accelerator, current if index is None else index)
    witness.read()
    accelerator.synchronize(*([] if index is None else [index]))
    what = f"synchronize() with index {index}, device {current} current"
    _expect_arrived(witness, what, "pass the index on to the runtime")


def test_synchronized_device_needs_no_wait(accelerator: DeepSpeedAccelerator, witness: Witness) -> None:
    """If `is_synchronized_device()` is True, the host may read without waiting, as DeepSpeed does."""
    witness.read()
    if accelerator.is_synchronized_device():
        _expect_arrived(witness, "a call on a synchronized device", "return False if work is queued")


def _record_in(accelerator: Any, side: Any) -> None:
    with accelerator.stream(side):
        event = _recorded(accelerator)
    event.synchronize()


def _current_in(accelerator: Any, side: Any) -> None:
    with accelerator.stream(side):
        accelerator.current_stream().synchronize()


_HOST_WAITS: dict[str, Act] = {
    "event.record(stream), event.synchronize()": lambda acc, side: _recorded(acc, side).synchronize(),
    "event.record(), event.synchronize()": _record_in,
    "stream.record_event().synchronize()": lambda acc, side: side.record_event().synchronize(),
    "stream.synchronize()": lambda acc, side: side.synchronize(),
    "current_stream().synchronize()": _current_in,
}


@_streams_and_events
@pytest.mark.parametrize("way", _HOST_WAITS)
def test_host_waits_for_a_stream(accelerator: DeepSpeedAccelerator, way: str) -> None:
    """Waiting on the host for a stream, or an event in it, waits for the work that `stream(s)` put there.

    Work without a chosen stream is in `current_stream()` and `default_stream()`.
    """
    for side in (accelerator.Stream(), None):
        witness = Witness(accelerator)
        with accelerator.stream(side):
            witness.read()
        _HOST_WAITS[way](accelerator, side or accelerator.default_stream())
        _expect_arrived(witness, way)


_DEVICE_WAITS: dict[str, Act] = {
    "event.wait()": lambda acc, side: _recorded(acc, side).wait(),
    "event.wait(stream)": lambda acc, side: _recorded(acc, side).wait(acc.current_stream()),
    "stream.wait_stream(other)": lambda acc, side: acc.current_stream().wait_stream(side),
    "stream.wait_event(other.record_event())": lambda acc, side: acc.current_stream().wait_event(
        side.record_event()
    ),
    "default_stream().wait_event(event)": lambda acc, side: acc.default_stream().wait_event(
        side.record_event(acc.Event())
    ),
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
    side, other = accelerator.Stream(), accelerator.Stream()
    with accelerator.stream(side):
        witness.write()
    _recorded(accelerator, side).wait(other)
    with accelerator.stream(other):
        _expect_sum(accelerator, witness, "event.wait(stream) of a stream that is not current")


@_streams_and_events
def test_event_that_is_done_is_of_work_that_is(accelerator: DeepSpeedAccelerator, witness: Witness) -> None:
    """Where `event.query()` is True, the work before the event has arrived: DeepSpeed then frees and reads buffers."""
    with accelerator.stream(accelerator.Stream()):
        witness.read()
        event = _recorded(accelerator)
    if event.query():
        _expect_arrived(witness, "event.query() is True, which", "ask the runtime in query()")


@_streams_and_events
def test_events_are_marks_of_their_own(accelerator: DeepSpeedAccelerator) -> None:
    """Two events in two streams, recorded and waited for in turn: each waits for its own stream's work."""
    pairs = []
    for _ in range(2):
        witness = Witness(accelerator)
        with accelerator.stream(accelerator.Stream()):
            witness.read()
            pairs.append((witness, _recorded(accelerator)))
    for witness, event in reversed(pairs):
        event.synchronize()
        _expect_arrived(witness, "the synchronize() of one of two events", "keep a mark for each event")


def _enter(accelerator: Any) -> None:
    with accelerator.stream(accelerator.Stream()):
        pass


def _wait_in_another(accelerator: Any) -> None:
    event = _recorded(accelerator)
    with accelerator.stream(accelerator.Stream()):
        event.wait()


_ASKING: dict[str, Callable[[Any], object]] = {
    "range_push(), range_pop()": lambda acc: [acc.range_push("step"), acc.range_pop()],
    "set_device() of the current one": lambda acc: acc.set_device(acc.current_device()),
    "on_accelerator()": lambda acc: acc.on_accelerator(torch.ones(1)),
    "is_pinned()": lambda acc: acc.is_pinned(torch.ones(1)),
    "default_generator()": lambda acc: acc.default_generator(0),
    **{
        f"{name}()": methodcaller(name)
        for name in (
            "current_device", "current_device_name", "device_count", "memory_allocated", "max_memory_allocated",
            "memory_reserved", "initial_seed",
        )
    },
}  # fmt: skip
_QUEUEING: dict[str, Callable[[Any], object]] = {
    "stream(s), entered and left": _enter,
    "current_stream()": lambda acc: acc.current_stream(),
    "default_stream()": lambda acc: acc.default_stream(),
    "event.record()": _recorded,
    "event.record(stream)": lambda acc: _recorded(acc, acc.current_stream()),
    "stream.record_event()": lambda acc: acc.current_stream().record_event(),
    "event.wait() of another stream": _wait_in_another,
    "event.wait(stream)": lambda acc: _recorded(acc).wait(acc.Stream()),
    "stream.wait_event(event)": lambda acc: acc.Stream().wait_event(_recorded(acc)),
    "stream.wait_stream(other)": lambda acc: acc.Stream().wait_stream(acc.current_stream()),
}


def _expect_in_flight(accelerator: DeepSpeedAccelerator, what: str, call: Callable[[], object]) -> None:
    """Fail if a copy that is in flight before the call has arrived after it."""
    call()  # what is compiled or imported at the first call
    # On a real device the work may be done while the call runs: one of three copies has to be left.
    for _ in range(1 if current() else 3):
        took = timeit(call, number=1)
        accelerator.synchronize()
        unwaited, witness = Witness(accelerator), Witness(accelerator)
        unwaited.read()
        time.sleep(took)
        if unwaited.has_arrived():
            pytest.skip("not shown: the device is done while a call runs")
        accelerator.synchronize()
        witness.read()
        call()
        if not (arrived := witness.has_arrived()):
            break
    accelerator.synchronize()
    holds = Holds({"a copy that was in flight before the call is in flight after it": not arrived})
    do = "queue the work, or ask, without synchronizing; only synchronize() and reading values wait"
    holds.expect(f"what {what} waits for", do)


@pytest.mark.parametrize("name", _ASKING)
def test_asking_does_not_wait(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A question, and a mark for a profiler, waits for no work."""
    _expect_in_flight(accelerator, name, lambda: _ASKING[name](accelerator))


@_streams_and_events
@pytest.mark.parametrize("name", _QUEUEING)
def test_queueing_does_not_wait(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Streams and events order work on the device; the host goes on."""
    _expect_in_flight(accelerator, name, lambda: _QUEUEING[name](accelerator))


@pytest.mark.needs("graphs")
def test_replay_does_not_wait(accelerator: DeepSpeedAccelerator) -> None:
    """`replay_graph` starts the work of a graph, and returns."""
    source = torch.ones(4, device=accelerator.device())
    graph = captured(accelerator, lambda: source.add_(1))
    _expect_in_flight(accelerator, "replay_graph()", lambda: accelerator.replay_graph(graph))


@pytest.mark.parametrize("name", needs.ops(FUSED))
def test_step_does_not_wait(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A step of an optimizer op on the device is queued; Lamb's ratio is read later, if at all."""
    builder, spec = accelerator.create_op_builder(name), of_builder(name)[0]
    if not builder.is_compatible():
        pytest.skip(f"{name} is not compatible")
    op, device = builder.load(), torch.device(accelerator.device())
    arguments = spec.first(torch.float32).placed(device, torch.float32)
    _expect_in_flight(accelerator, spec.name, lambda: spec.call(op, torch.float32, arguments))


def _read_after_write(accelerator: Any, writer: Any, reader: Any) -> bool:
    witness = Witness(accelerator)
    with accelerator.stream(writer):
        witness.write()
    with accelerator.stream(reader):
        total = witness.device_tensor.sum()
    accelerator.synchronize()
    return witness.sum_was_right(total)


def _write_after_read(accelerator: Any, side: Any) -> bool:
    witness = Witness(accelerator)
    with accelerator.stream(side):
        witness.read()
    witness.overwrite()
    accelerator.synchronize()
    return witness.has_arrived()


def _memory_used_again(accelerator: Any, side: Any) -> bool:
    place = accelerator.device(accelerator.current_device())
    source = accelerator.pin_memory(torch.full((1 << 16,), 7.0))
    tensor = torch.zeros_like(source, device=place)
    with accelerator.stream(side):
        Witness(accelerator).write()  # so that the side stream is late
        tensor.copy_(source, non_blocking=True)
    del tensor
    following = torch.zeros_like(source, device=place)
    accelerator.synchronize()
    return bool((following == 0).all().item())


_DEPENDENCIES: dict[str, Act] = {
    "a read after a write": lambda acc, side: _read_after_write(acc, side, None),
    "a read after a write in the default stream": lambda acc, side: _read_after_write(acc, None, side),
    "a write after a read": _write_after_read,
    "memory used again": _memory_used_again,
}


@_streams
@pytest.mark.parametrize("dependency", _DEPENDENCIES)
def test_resolved_dependency_needs_no_wait(accelerator: DeepSpeedAccelerator, dependency: str) -> None:
    """If `resolves_data_dependency()` is True, work of two streams on the same data is ordered without a wait.

    DeepSpeed then calls neither `wait_stream` nor `record_stream`.
    """
    if not accelerator.resolves_data_dependency():
        pytest.skip("resolves_data_dependency() is False")
    holds = Holds({dependency: _DEPENDENCIES[dependency](accelerator, accelerator.Stream())})
    do = "return False: DeepSpeed then waits for its streams, and records them on its tensors"
    holds.expect("work in two streams without a wait, where resolves_data_dependency() is True,", do)


@pytest.mark.needs("graphs", "streams")
@pytest.mark.parametrize("chosen", [True, False], ids=["chosen stream", "default stream"])
def test_replay_is_in_the_current_stream(accelerator: DeepSpeedAccelerator, chosen: bool) -> None:
    """`replay_graph` runs in the stream that is current: after the work before it there, and before that after it."""
    witness = Witness(accelerator)
    doubled = torch.empty_like(witness.device_tensor)
    graph = captured(accelerator, lambda: torch.mul(witness.device_tensor, 2, out=doubled))
    accelerator.synchronize()
    stream = accelerator.Stream() if chosen else accelerator.default_stream()
    with accelerator.stream(stream):
        witness.write()
        accelerator.replay_graph(graph)
        total = doubled.sum()
    stream.synchronize()
    found, wanted = total.item() / 2, witness.device_tensor.sum().item()
    holds = Holds({f"it comes after a copy, and before a sum: {found:g} of {wanted:g}": found == wanted > 0})
    holds.expect("replay_graph() in the current stream", "replay without choosing a stream")
