# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Graphs: a replay runs the captured work on the present contents of its inputs."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from accel_sim.checks import Checks, Device, expect, same

CHECKS = Checks()


def new_graph(d: Device) -> Any:
    """Return an empty graph of the vendor's class."""
    return getattr(d.module, f"{d.type.upper()}Graph")()


def captured(d: Device, work: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Capture work; return the graph and what the work returned."""
    graph = new_graph(d)
    with d.module.graph(graph, **options):
        result = work()
    return graph, result


@CHECKS
def a_replay_works_on_new_data(d: Device) -> None:
    source = torch.ones(4, device=d.type)
    graph, result = captured(d, lambda: (source * 2 + 1).reshape(2, 2).t().contiguous())
    for value in (3.0, 5.0):
        source.fill_(value)
        graph.replay()
        same(result, [[2 * value + 1] * 2] * 2)


@CHECKS
def nothing_happens_before_the_replay(d: Device) -> None:
    weight = torch.ones(3, device=d.type)
    graph, result = captured(d, lambda: weight.add_(1) * 2)
    same(weight, [1.0] * 3)
    expect(result.isnan().all().item(), f"an output is readable before the replay: {result.tolist()}")
    graph.replay()
    graph.replay()
    same(weight, [3.0] * 3)
    same(result, [6.0] * 3)


@CHECKS
def a_capture_is_noticed(d: Device) -> None:
    graph, inside = captured(
        d, lambda: (d.module.is_current_stream_capturing(), torch.ones(1, device=d.type))
    )
    expect(inside[0] is True and d.module.is_current_stream_capturing() is False)
    expect(graph.pool() != d.module.graph_pool_handle(), "two pools have the same handle")


@CHECKS
def graphs_share_a_pool(d: Device) -> None:
    pool = d.module.graph_pool_handle()
    x = torch.ones(2, device=d.type)
    first, y = captured(d, lambda: x + 1, pool=pool)
    second, z = captured(d, lambda: y * 3, pool=pool)
    first.replay()
    second.replay()
    same(z, [6.0, 6.0])
    expect(first.pool() == second.pool() == pool)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.GELU(), nn.Flatten(), nn.Linear(24, 3))


def _train_step_equals_eager(d: Device, make_optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
    plain = _model().to(d.type)
    replayed = copy.deepcopy(plain)
    batches = [torch.randn(5, 2, 8, device=d.type) for _ in range(4)]
    batch = batches[0].clone()

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: Any = nn.functional.cross_entropy(model(x), torch.zeros(5, dtype=torch.long, device=d.type))
        loss.backward()
        optimizer.step()
        return loss.detach()  # type: ignore[no-any-return]

    eager, graphed = make_optimizer(plain.parameters()), make_optimizer(replayed.parameters())
    side = d.module.Stream()
    side.wait_stream(d.module.current_stream())
    with d.module.stream(side):  # states of the optimizer come to be outside the graph
        same(step(replayed, graphed, batch), step(plain, eager, batch))
    d.module.current_stream().wait_stream(side)
    graph, loss = captured(d, lambda: step(replayed, graphed, batch))
    for x in batches[1:]:
        batch.copy_(x)
        graph.replay()
        same(loss, step(plain, eager, x))
    for mine, theirs in zip(plain.state_dict().values(), replayed.state_dict().values(), strict=True):
        same(theirs, mine)


@CHECKS
def a_train_step_with_momentum_equals_eager(d: Device) -> None:
    _train_step_equals_eager(d, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))


@CHECKS
def a_train_step_with_capturable_adam_equals_eager(d: Device) -> None:
    _train_step_equals_eager(
        d, lambda parameters: torch.optim.AdamW(parameters, lr=0.1, capturable=True, foreach=True)
    )


@CHECKS
def what_is_drawn_differs_at_each_replay(d: Device) -> None:
    def draw() -> torch.Tensor:
        x = torch.ones(64, device=d.type)
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    torch.accelerator.synchronize()
    d.module.manual_seed(7)
    expected = [draw().cpu() for _ in range(2)]
    d.module.manual_seed(7)
    graph, result = captured(d, draw)
    for each in expected:
        graph.replay()
        same(result, each)


@CHECKS
def page_locked_memory_is_copied_at_the_replay(d: Device) -> None:
    host = torch.ones(4).pin_memory()
    back = torch.zeros(4).pin_memory()
    x = torch.zeros(4, device=d.type)

    def copies() -> None:
        x.copy_(host, non_blocking=True)
        back.copy_(x * 2, non_blocking=True)

    graph, _ = captured(d, copies)
    same(back, [0.0] * 4)
    host.fill_(5)
    graph.replay()
    torch.accelerator.synchronize()
    same(back, [10.0] * 4)


@CHECKS
def masks_and_indices_that_stay_on_the_device_are_captured(d: Device) -> None:
    x, where = torch.zeros(4, device=d.type), torch.tensor([1, 3], device=d.type)

    def work() -> torch.Tensor:
        x[where] += 1
        x[x > 5] = 0
        return x[where].repeat_interleave(2)

    graph, result = captured(d, work)
    for _ in range(7):
        graph.replay()
    same(x, [0.0, 1.0, 0.0, 1.0])
    same(result, [1.0] * 4)


@CHECKS
def graphed_callables_equal_eager(d: Device) -> None:
    plain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(d.type)
    graphed = copy.deepcopy(plain)
    sample = torch.randn(3, 4, device=d.type)
    graphed = d.module.make_graphed_callables(graphed, (sample,))
    for _ in range(2):
        x = torch.randn(3, 4, device=d.type)
        for module in (plain, graphed):
            module.zero_grad()
        first, second = plain(x), graphed(x)
        same(second, first)
        first.square().sum().backward()
        second.square().sum().backward()
        for mine, theirs in zip(plain.parameters(), graphed.parameters(), strict=True):
            assert mine.grad is not None
            assert theirs.grad is not None
            same(theirs.grad, mine.grad)


@CHECKS
def a_graph_frees_its_memory(d: Device) -> None:
    gc.collect()
    before = torch.accelerator.memory_allocated()
    held = [torch.ones(1 << 18, device=d.type)]
    graph = captured(d, lambda: (held[0] + 1) * 2)[0]
    expect(torch.accelerator.memory_allocated() - before >= 3 << 20, "a graph holds no memory")
    graph.reset()
    held.clear()
    gc.collect()
    expect(torch.accelerator.memory_allocated() == before, "a graph that was reset holds memory")
