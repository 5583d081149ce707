# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is forbidden during a capture, and the errors of a graph."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import torch

from accel_sim.checks import Checks, Device, expect, raises, same
from accel_sim.checks.graphs import captured, new_graph

CHECKS = Checks()
NOT_PERMITTED = "operation not permitted when stream is capturing"


def breaks(d: Device, work: Callable[[], Any], words: str = "") -> None:
    """Check that the work raises, and that the capture around it ends with an error and leaves no graph."""
    graph, stream = new_graph(d), d.module.Stream()
    with d.module.stream(stream):
        graph.capture_begin()
        raises(work, RuntimeError, words)
        raises(graph.capture_end, RuntimeError, "previous error during capture")
    raises(graph.replay, RuntimeError, "without a preceding successful capture")


@CHECKS
def other_generators_are_registered(d: Device) -> None:
    generator = torch.Generator(device=d.type).manual_seed(3)
    first = torch.rand(4, device=d.type, generator=generator).cpu()
    generator.manual_seed(3)

    def draw() -> torch.Tensor:
        return torch.rand(4, device=d.type, generator=generator)

    breaks(d, draw, "not registered")
    if hasattr(getattr(d.module, f"{d.type.upper()}Graph"), "register_generator_state"):
        graph = new_graph(d)
        graph.register_generator_state(generator)
        with d.module.graph(graph):
            result = draw()
        graph.replay()
        same(result, first)


@CHECKS
def a_seed_is_not_set_in_a_capture(d: Device) -> None:
    raises(lambda: captured(d, lambda: d.module.manual_seed(1)), RuntimeError, "graph capture")


@CHECKS
def the_host_does_not_read_or_wait_in_a_capture(d: Device) -> None:
    x = torch.ones(4, device=d.type)
    event = d.module.Event()
    event.record()
    for work in (
        lambda: (x * 2).sum().item(),
        lambda: (x + 1).cpu(),
        lambda: torch.accelerator.synchronize(),
        lambda: d.module.current_stream().synchronize(),
        lambda: x.nonzero(),
        lambda: x[x > 0],
        lambda: torch.equal(x, x),
        lambda: torch.tensor(3.0, device=d.type),
        lambda: x.copy_(torch.zeros(4)),
        lambda: x.copy_(torch.zeros(4).pin_memory()),
    ):
        breaks(d, work)


@CHECKS
def one_capture_at_a_time(d: Device) -> None:
    with d.module.stream(d.module.Stream()):
        outer = new_graph(d)
        outer.capture_begin()
        raises(new_graph(d).capture_begin, RuntimeError, NOT_PERMITTED)
        torch.ones(1, device=d.type)
        outer.capture_end()
        raises(outer.capture_begin, RuntimeError, "already owns a captured graph")
        outer.reset()
        outer.capture_begin()
        torch.ones(1, device=d.type)
        outer.capture_end()


@CHECKS
def there_is_nothing_to_replay_without_a_capture(d: Device) -> None:
    graph = new_graph(d)
    raises(graph.replay, RuntimeError, f"Called {d.type.upper()}Graph::replay without a preceding")
    raises(graph.pool, RuntimeError, "without a preceding successful capture")
    raises(graph.capture_begin, RuntimeError, "non-default stream")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        captured(d, lambda: None)
    expect(any("Graph is empty" in str(each.message) for each in caught), "an empty graph is not warned of")


@CHECKS
def other_streams_join_the_capture(d: Device) -> None:
    x = torch.ones(4, device=d.type)
    side = d.module.Stream()

    def fork(*, join: bool) -> torch.Tensor:
        side.wait_stream(d.module.current_stream())
        with d.module.stream(side):
            inside = d.module.is_current_stream_capturing()
            y = x * 3
        expect(inside, "a stream that waits for a captured one is not captured")
        if join:
            d.module.current_stream().wait_stream(side)
        return y

    graph, result = captured(d, lambda: fork(join=True) + 1)
    graph.replay()
    same(result, [4.0] * 4)
    with d.module.stream(d.module.Stream()):
        graph = new_graph(d)
        graph.capture_begin()
        fork(join=False)
        raises(graph.capture_end, RuntimeError, "unjoined work")
    elsewhere = side.record_event()
    breaks(d, lambda: d.module.current_stream().wait_event(elsewhere), "uncaptured work")


@CHECKS
def memory_freed_after_the_capture_is_noticed(d: Device) -> None:
    held = [torch.ones(4, device=d.type)]
    graph, _ = captured(d, lambda: held[0] + 1)
    held.clear()
    gc.collect()
    raises(graph.replay, RuntimeError, "freed or moved")
