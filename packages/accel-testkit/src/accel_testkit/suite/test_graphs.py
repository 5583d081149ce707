# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: work recorded once and replayed on new data; without graphs a capture runs the code."""

from __future__ import annotations

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")


def _captured(accelerator: DeepSpeedAccelerator) -> tuple[object, torch.Tensor, torch.Tensor]:
    """A graph that computes 2 x + 1, its input (ones) and its output."""
    source = torch.ones(4, device=accelerator.device())
    result = source * 2 + 1  # once outside, as runtimes ask for
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        result = source * 2 + 1
    return graph, source, result


@pytest.mark.needs("graphs")
def test_replay_uses_new_data(accelerator: DeepSpeedAccelerator) -> None:
    """`replay_graph` runs the captured work again, on what its input tensors hold now."""
    graph, source, result = _captured(accelerator)
    source.fill_(3)
    accelerator.replay_graph(graph)
    accelerator.synchronize()
    expect(
        result.tolist() == [7.0] * 4,
        "a replayed graph gives a wrong result",
        found=repr(result.tolist()),
        expected="2 x + 1 = 7.0 for the new input 3",
        do="capture with the runtime's graph context and replay the same graph",
    )


@pytest.mark.needs("graphs")
def test_each_graph_is_its_own(accelerator: DeepSpeedAccelerator) -> None:
    """`create_graph` gives a new graph at each call."""
    graphs = [accelerator.create_graph() for _ in range(2)]
    expect(
        None not in graphs and graphs[0] is not graphs[1],
        "create_graph() gives no new graph",
        found=repr(graphs),
        expected="two graphs; declare the trait graphs where the runtime has none",
        do="construct the runtime's graph class",
    )


@pytest.mark.needs("graphs")
def test_capture_can_be_noticed(accelerator: DeepSpeedAccelerator) -> None:
    """`is_current_stream_capturing()` is True inside a capture and False outside."""
    torch.ones(1, device=accelerator.device())
    with accelerator.capture_to_graph(accelerator.create_graph()):
        inside = accelerator.is_current_stream_capturing()
        torch.ones(1, device=accelerator.device())
    found = (inside, accelerator.is_current_stream_capturing())
    expect(
        found == (True, False),
        "is_current_stream_capturing() does not notice a capture",
        found=f"{found} inside and after it",
        expected="(True, False)",
        do="ask the runtime",
    )


def test_code_in_a_capture_is_usable_after_a_replay(accelerator: DeepSpeedAccelerator) -> None:
    """With graphs or without, the pattern create, capture, replay leaves the result of the captured code."""
    graph, _, result = _captured(accelerator)
    accelerator.replay_graph(graph)
    accelerator.synchronize()
    expect(
        result.tolist() == [3.0] * 4,
        "captured code leaves a wrong result",
        found=repr(result.tolist()),
        expected="2 x + 1 = 3.0 for the input 1",
        do="without graphs, return contextlib.nullcontext() from capture_to_graph()",
    )


@pytest.mark.needs("graphs")
def test_each_replay_runs_the_work(accelerator: DeepSpeedAccelerator) -> None:
    """A graph is replayed as often as asked, each time on what its input holds then."""
    graph, source, result = _captured(accelerator)
    found = []
    for value in (2.0, 5.0, 5.0, -1.0):
        source.fill_(value)
        accelerator.replay_graph(graph)
        accelerator.synchronize()
        found.append(result.tolist()[0])
    expect(
        found == [5.0, 11.0, 11.0, -1.0],
        "a second replay gives a wrong result",
        found=repr(found),
        expected="2 x + 1 for the inputs 2, 5, 5, -1: 5.0, 11.0, 11.0, -1.0",
        do="replay the same graph at each call",
    )


@pytest.mark.needs("graphs")
def test_replay_runs_the_work_once(accelerator: DeepSpeedAccelerator) -> None:
    """A replay runs the captured work one time: what accumulates, such as a gradient, is right."""
    total = torch.zeros(4, device=accelerator.device())
    total.add_(1)  # once outside, as runtimes ask for
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        total.add_(1)
    total.zero_()
    found = []
    for _ in range(3):
        accelerator.replay_graph(graph)
        accelerator.synchronize()
        found.append(total.tolist()[0])
    expect(
        found == [1.0, 2.0, 3.0],
        "a replay does not run the captured work once",
        found=f"a sum of {found} after three replays of adding 1",
        expected="[1.0, 2.0, 3.0]",
        do="replay the graph, and nothing else",
    )


@pytest.mark.needs("graphs")
def test_two_graphs_are_replayed_in_any_order(accelerator: DeepSpeedAccelerator) -> None:
    """A replay runs the work of its own graph, and of no other."""
    graphs = [_captured(accelerator) for _ in range(2)]
    found = []
    for number, value in ((0, 2.0), (1, 3.0), (0, 4.0)):
        graph, source, _ = graphs[number]
        source.fill_(value)
        accelerator.replay_graph(graph)
        accelerator.synchronize()
        found.append([result.tolist()[0] for _, _, result in graphs])
    expect(
        found[0][0] == 5.0 and found[1] == [5.0, 7.0] and found[2] == [9.0, 7.0],
        "a replay runs another graph's work",
        found=f"after replays of graphs 0, 1, 0: {found}",
        expected="2 x + 1 of each graph's own input: 5.0; 5.0 and 7.0; 9.0 and 7.0",
        do="replay the graph that is given",
    )


@pytest.mark.needs("graphs", "streams")
def test_capture_is_on_its_stream_and_pool(accelerator: DeepSpeedAccelerator) -> None:
    """Within `capture_to_graph(graph, pool, stream)` that stream is the current one, and the graph has that pool."""
    first, second = accelerator.create_graph(), accelerator.create_graph()
    stream = accelerator.Stream()
    with accelerator.capture_to_graph(first, stream=stream):
        inside = accelerator.current_stream()
        torch.ones(1, device=accelerator.device())
    handles = [getattr(graph, "pool", None) for graph in (first, second)]  # hpu's graphs have none to share
    with accelerator.capture_to_graph(second, pool=handles[0]() if handles[0] else None):
        torch.ones(1, device=accelerator.device())
    pools = [handle() if handle else None for handle in handles]
    after = accelerator.current_stream()
    expect(
        inside == stream and after != stream and pools[0] == pools[1],
        "capture_to_graph() does not use its stream and pool",
        found=f"stream {inside} for {stream}, pool {pools[1]} for {pools[0]}",
        expected="those that are given",
        do="pass pool and stream on to the runtime's graph context",
    )


@pytest.mark.needs("graphs")
@pytest.mark.parametrize("kind", [LookupError, RuntimeError, ValueError, KeyboardInterrupt])
def test_capture_ends_with_an_exception(accelerator: DeepSpeedAccelerator, kind: type[BaseException]) -> None:
    """After an exception in a capture none is under way, the exception is passed on, and the next capture works."""
    passed_on = False
    try:
        with accelerator.capture_to_graph(accelerator.create_graph()):
            torch.ones(4, device=accelerator.device())
            raise kind("the work fails")
    except kind:
        passed_on = True
    capturing = accelerator.is_current_stream_capturing()
    graph, source, result = _captured(accelerator)
    source.fill_(3)
    accelerator.replay_graph(graph)
    accelerator.synchronize()
    expect(
        (passed_on, capturing, result.tolist()) == (True, False, [7.0] * 4),
        "a capture does not end with an exception",
        found=f"passed on: {passed_on}; capturing after it: {capturing}; next graph: {result.tolist()}",
        expected="the exception, no capture under way, and 7.0 from the next graph",
        do="return the runtime's graph context, or end the capture in a finally clause",
    )


@pytest.mark.needs("streams")
def test_work_in_a_stream_is_no_capture(accelerator: DeepSpeedAccelerator) -> None:
    """`is_current_stream_capturing()` is False in a stream that was chosen, where no capture is under way."""
    with accelerator.stream(accelerator.Stream()):
        torch.ones(4, device=accelerator.device()).add_(1)
        found = accelerator.is_current_stream_capturing()
    expect(
        found is False,
        "a chosen stream is taken for a capture",
        found=repr(found),
        expected="False: ops that cannot be captured would be left out",
        do="ask the runtime whether the stream captures",
    )


def test_no_graph_captures_nothing(accelerator: DeepSpeedAccelerator) -> None:
    """With None, which `create_graph()` gives where there are no graphs, the code runs; to replay it is nothing."""
    total = torch.zeros(4, device=accelerator.device())
    with accelerator.capture_to_graph(None):
        capturing = accelerator.is_current_stream_capturing()
        total += 1
    accelerator.replay_graph(None)
    accelerator.synchronize()
    expect(
        capturing is False and total.tolist() == [1.0] * 4,
        "a capture without a graph is not the code alone",
        found=f"is_current_stream_capturing() {capturing!r} inside, 0 + 1 = {total.tolist()}",
        expected="False; 1.0, once",
        do="return a nullcontext for None, and do nothing in replay_graph(None)",
    )
