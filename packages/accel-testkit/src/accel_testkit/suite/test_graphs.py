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
