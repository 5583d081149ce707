# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: a replay runs the captured work on the present contents of its inputs; what a capture forbids."""

import copy
import gc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from .conftest import Device, raises, same


def new_graph(device: Device) -> Any:
    """Return an empty graph of the vendor's class."""
    return getattr(device.module, f"{device.type.upper()}Graph")()


def captured(device: Device, work: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Capture work; return the graph and what the work returned."""
    graph = new_graph(device)
    with device.module.graph(graph, **options):
        result = work()
    return graph, result


def test_graphs_share_a_pool(device: Device) -> None:
    pool = device.module.graph_pool_handle()
    x = torch.ones(2, device=device.type)
    first, y = captured(device, lambda: x + 1, pool=pool)
    second, z = captured(device, lambda: y * 3, pool=pool)
    first.replay()
    second.replay()
    same(z, [6.0, 6.0])
    assert first.pool() == second.pool() == pool


@pytest.mark.parametrize(
    "make_optimizer",
    [partial(torch.optim.SGD, momentum=0.9), partial(torch.optim.AdamW, capturable=True, foreach=True)],
    ids=["sgd", "adamw"],
)
def test_train_step_equals_eager(device: Device, make_optimizer: Any) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.GELU(), nn.Flatten(), nn.Linear(24, 3))
    plain.to(device.type)
    replayed = copy.deepcopy(plain)
    batches = [torch.randn(5, 2, 8, device=device.type) for _ in range(4)]
    batch, target = batches[0].clone(), torch.zeros(5, dtype=torch.long, device=device.type)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: Any = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()  # type: ignore[no-any-return]

    eager, graphed = (make_optimizer(model.parameters(), lr=0.1) for model in (plain, replayed))
    side = device.module.Stream()
    side.wait_stream(device.module.current_stream())
    with device.module.stream(side):  # the optimizer makes its states outside of the graph
        same(step(replayed, graphed, batch), step(plain, eager, batch))
    device.module.current_stream().wait_stream(side)
    graph, loss = captured(device, lambda: step(replayed, graphed, batch))
    for x in batches[1:]:
        batch.copy_(x)
        graph.replay()
        same(loss, step(plain, eager, x))
    for mine, theirs in zip(plain.state_dict().values(), replayed.state_dict().values(), strict=True):
        same(theirs, mine)


def test_what_is_drawn_differs_at_each_replay(device: Device) -> None:
    def draw() -> torch.Tensor:
        x = torch.ones(64, device=device.type)
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    torch.accelerator.synchronize()
    device.module.manual_seed(7)
    expected = [draw().cpu() for _ in range(2)]
    device.module.manual_seed(7)
    graph, result = captured(device, draw)
    for each in expected:
        graph.replay()
        same(result, each)


def test_page_locked_memory_is_copied_at_the_replay(device: Device) -> None:
    host = torch.ones(4).pin_memory()
    back = torch.zeros(4).pin_memory()
    x = torch.zeros(4, device=device.type)

    def copies() -> None:
        x.copy_(host, non_blocking=True)
        back.copy_(x * 2, non_blocking=True)

    graph, _ = captured(device, copies)
    same(back, [0.0] * 4)
    host.fill_(5)
    graph.replay()
    torch.accelerator.synchronize()
    same(back, [10.0] * 4)


def test_masks_and_indices_that_stay_on_the_device_are_captured(device: Device) -> None:
    x, where = torch.zeros(4, device=device.type), torch.tensor([1, 3], device=device.type)

    def work() -> torch.Tensor:
        x[where] += 1
        x[x > 5] = 0
        return x[where].repeat_interleave(2)

    graph, result = captured(device, work)
    for _ in range(7):
        graph.replay()
    same(x, [0.0, 1.0, 0.0, 1.0])
    same(result, [1.0] * 4)


def test_graphed_callables_equal_eager(device: Device) -> None:
    if device.type not in ("cuda", "xpu"):
        pytest.skip("it is not simulated for the others")
    plain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(device.type)
    graphed = copy.deepcopy(plain)
    sample = torch.randn(3, 4, device=device.type)
    graphed = device.module.make_graphed_callables(graphed, (sample,))
    for _ in range(2):
        x = torch.randn(3, 4, device=device.type)
        results = []
        for module in (plain, graphed):
            module.zero_grad()
            results.append(module(x))
            results[-1].square().sum().backward()
        same(*results)
        for mine, theirs in zip(plain.parameters(), graphed.parameters(), strict=True):
            same(theirs.grad, mine.grad)


def test_a_graph_frees_its_memory(device: Device) -> None:
    gc.collect()
    before = torch.accelerator.memory_allocated()
    held = [torch.ones(1 << 18, device=device.type)]
    graph = captured(device, lambda: (held[0] + 1) * 2)[0]
    assert torch.accelerator.memory_allocated() - before >= 3 << 20, "a graph holds no memory"
    graph.reset()
    held.clear()
    gc.collect()
    assert torch.accelerator.memory_allocated() == before, "a graph that was reset holds memory"


NOT_PERMITTED = "operation not permitted when stream is capturing"


def breaks(device: Device, work: Callable[[], Any], words: str = "") -> None:
    """Check that the work raises, and that the capture around it ends with an error and leaves no graph."""
    graph, stream = new_graph(device), device.module.Stream()
    with device.module.stream(stream):
        graph.capture_begin()
        raises(work, RuntimeError, words)
        raises(graph.capture_end, RuntimeError, "previous error during capture")
    raises(graph.replay, RuntimeError, "without a preceding successful capture")


def test_other_generators_are_registered(device: Device) -> None:
    generator = torch.Generator(device=device.type).manual_seed(3)
    draw = partial(torch.rand, 4, device=device.type, generator=generator)
    first = draw().cpu()
    generator.manual_seed(3)
    breaks(device, draw, "not registered")
    if hasattr(getattr(device.module, f"{device.type.upper()}Graph"), "register_generator_state"):
        graph = new_graph(device)
        graph.register_generator_state(generator)
        with device.module.graph(graph):
            result = draw()
        graph.replay()
        same(result, first)


def test_the_host_does_not_read_or_wait_in_a_capture(device: Device) -> None:
    x = torch.ones(4, device=device.type)
    event = device.module.Event()
    event.record()
    for work in (
        lambda: (x * 2).sum().item(),
        lambda: (x + 1).cpu(),
        lambda: torch.accelerator.synchronize(),
        lambda: device.module.current_stream().synchronize(),
        lambda: x.nonzero(),
        lambda: x[x > 0],
        lambda: torch.equal(x, x),
        lambda: torch.tensor(3.0, device=device.type),
        lambda: x.copy_(torch.zeros(4)),
        lambda: x.copy_(torch.zeros(4).pin_memory()),
    ):
        breaks(device, work)
    raises(lambda: captured(device, lambda: device.module.manual_seed(1)), RuntimeError, "graph capture")


def test_one_capture_at_a_time(device: Device) -> None:
    with device.module.stream(device.module.Stream()):
        outer = new_graph(device)
        outer.capture_begin()
        raises(new_graph(device).capture_begin, RuntimeError, NOT_PERMITTED)
        torch.ones(1, device=device.type)
        outer.capture_end()
        raises(outer.capture_begin, RuntimeError, "already owns a captured graph")
        outer.reset()
        outer.capture_begin()
        torch.ones(1, device=device.type)
        outer.capture_end()


def test_there_is_nothing_to_replay_without_a_capture(device: Device) -> None:
    graph = new_graph(device)
    raises(graph.replay, RuntimeError, f"Called {device.type.upper()}Graph::replay without a preceding")
    raises(graph.pool, RuntimeError, "without a preceding successful capture")
    raises(graph.capture_begin, RuntimeError, "non-default stream")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        captured(device, lambda: None)
    assert any("Graph is empty" in str(each.message) for each in caught), "an empty graph is not warned of"


def test_other_streams_join_the_capture(device: Device) -> None:
    x = torch.ones(4, device=device.type)
    side = device.module.Stream()

    def fork(*, join: bool) -> torch.Tensor:
        side.wait_stream(device.module.current_stream())
        with device.module.stream(side):
            inside = device.module.is_current_stream_capturing()
            y = x * 3
        assert inside, "a stream that waits for a captured one is not captured"
        if join:
            device.module.current_stream().wait_stream(side)
        return y

    graph, result = captured(device, lambda: fork(join=True) + 1)
    graph.replay()
    same(result, [4.0] * 4)
    with device.module.stream(device.module.Stream()):
        graph = new_graph(device)
        graph.capture_begin()
        fork(join=False)
        raises(graph.capture_end, RuntimeError, "unjoined work")
    elsewhere = side.record_event()
    breaks(device, lambda: device.module.current_stream().wait_event(elsewhere), "uncaptured work")


def test_memory_freed_after_the_capture_is_noticed(device: Device) -> None:
    held = [torch.ones(4, device=device.type)]
    graph, _ = captured(device, lambda: held[0] + 1)
    held.clear()
    gc.collect()
    raises(graph.replay, RuntimeError, "freed or moved")
