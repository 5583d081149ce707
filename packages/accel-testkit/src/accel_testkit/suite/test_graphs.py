# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: work recorded once and replayed on new data; without graphs a capture runs the code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds, expect_equal

pytestmark = pytest.mark.tier("device")

_graphs = pytest.mark.needs("graphs")
_CONTEXT = "return the runtime's graph context, or end the capture in a finally clause"


def captured(accelerator: DeepSpeedAccelerator, work: Callable[[], object]) -> Any:
    """Return a graph of the work, which is done once outside before, as runtimes ask for."""
    work()
    accelerator.synchronize()
    graph: Any = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        work()
    return graph


class _Captured:
    """A graph that computes 2 x + 1 and counts its replays; its input (ones), its output and the count."""

    def __init__(self, accelerator: DeepSpeedAccelerator) -> None:
        self._accelerator = accelerator
        self.source, self.count = (torch.ones(size, device=accelerator.device()) for size in (4, 1))
        self.graph = captured(accelerator, self._compute)
        self.count.zero_()

    def _compute(self) -> None:
        self.result = self.source * 2 + 1
        self.count.add_(1)

    def replay(self, value: float | None = None) -> list[float]:
        """Replay on a new input, or on the one that it was captured with; return the result."""
        if value is not None:
            self.source.fill_(value)
        self._accelerator.replay_graph(self.graph)
        self._accelerator.synchronize()
        found: list[float] = self.result.tolist()
        return found


def test_code_in_a_capture_is_usable_after_a_replay(accelerator: DeepSpeedAccelerator) -> None:
    """With graphs or without, the pattern create, capture, replay leaves the result of the captured code."""
    do = "without graphs, return contextlib.nullcontext() from capture_to_graph()"
    expect_equal("captured code's 2 x + 1 for the input 1", _Captured(accelerator).replay(), [3.0] * 4, do)


@_graphs
def test_replay_uses_new_data(accelerator: DeepSpeedAccelerator) -> None:
    """`replay_graph` runs a graph's own work again, as often as asked, on what its input tensors hold then.

    Each replay runs it once: what accumulates, such as a gradient, is right.
    """
    holds, graphs = Holds(), [_Captured(accelerator) for _ in range(2)]
    made = {id(each.graph) for each in graphs if each.graph is not None}
    holds["create_graph() gives a new graph at each call"] = len(made) == 2
    for number, value in ((0, 2.0), (0, 5.0), (1, 3.0), (0, 5.0), (0, -1.0)):
        what = f"2 x + 1 for the input {value} of graph {number}"
        holds.equal(what, graphs[number].replay(value), [2 * value + 1] * 4)
        if number == 1:
            holds.equal("the result of the other graph", graphs[0].result.tolist(), [11.0] * 4)
    holds.equal("how often each work has run", [each.count.item() for each in graphs], [4.0, 1.0])
    holds.expect("a replay", "capture with the runtime's graph context and replay the graph that is given")


@pytest.mark.needs("graphs", "streams")
def test_capture_is_on_its_stream_and_pool(accelerator: DeepSpeedAccelerator) -> None:
    """Within `capture_to_graph(graph, pool, stream)` that stream is the current one, and the graph has that pool."""
    first, second, holds = accelerator.create_graph(), accelerator.create_graph(), Holds()
    stream = accelerator.Stream()
    with accelerator.capture_to_graph(first, stream=stream):
        holds.equal("the stream inside", accelerator.current_stream(), stream)
        torch.ones(1, device=accelerator.device())
    handles = [getattr(graph, "pool", None) for graph in (first, second)]  # hpu's graphs have none to share
    with accelerator.capture_to_graph(second, pool=handles[0]() if handles[0] else None):
        torch.ones(1, device=accelerator.device())
    pools = [handle() if handle else None for handle in handles]
    holds.equal("the pool", pools[1], pools[0])
    holds["the stream is left"] = accelerator.current_stream() != stream
    holds.expect("a capture", "pass pool and stream on to the runtime's graph context")


@_graphs
@pytest.mark.parametrize("kind", [LookupError, RuntimeError, ValueError, KeyboardInterrupt])
def test_capture_ends_with_an_exception(accelerator: DeepSpeedAccelerator, kind: type[BaseException]) -> None:
    """`is_current_stream_capturing()` is True inside a capture, and False after one that an exception ended.

    The exception is passed on, and the next capture works.
    """
    holds, passed_on, inside = Holds(), False, False
    try:
        with accelerator.capture_to_graph(accelerator.create_graph()):
            inside = accelerator.is_current_stream_capturing()
            torch.ones(4, device=accelerator.device())
            raise kind("the work fails")
    except kind:
        passed_on = True
    holds["the exception is passed on"] = passed_on
    holds.equal("is_current_stream_capturing() inside", inside, True)
    holds.equal("is_current_stream_capturing() after it", accelerator.is_current_stream_capturing(), False)
    holds.equal("2 x + 1 for the input 3 of the next graph", _Captured(accelerator).replay(3.0), [7.0] * 4)
    holds.expect("a capture with an exception", _CONTEXT)


def test_no_graph_captures_nothing(accelerator: DeepSpeedAccelerator) -> None:
    """With None, which `create_graph()` gives where there are no graphs, the code runs; to replay it is nothing.

    Work in a stream that was chosen, or in `stream(None)`, is not a capture. Exceptions are passed on.
    """
    holds, total = Holds(), torch.zeros(4, device=accelerator.device())

    def work(stream: Any) -> None:
        with accelerator.capture_to_graph(None), accelerator.stream(stream):
            holds.equal(
                "is_current_stream_capturing() inside", accelerator.is_current_stream_capturing(), False
            )
            total.add_(1)
            raise KeyError("inside")

    for stream in (accelerator.Stream and accelerator.Stream(), None):
        accelerator.synchronize()
        holds.raises(KeyError, f"work in stream({stream!r}) that raises KeyError", partial(work, stream))
    accelerator.replay_graph(None)
    accelerator.synchronize()
    holds.equal("0 + 1 + 1", total.tolist(), [2.0] * 4)
    do = "return a nullcontext for None, and do nothing in replay_graph(None)"
    holds.expect("a capture without a graph", do)
