# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variants that wait where work is only queued or asked for, on the simulated NPU: `python -m simulated` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch_npu
from accel_good.op_builder import TABLE
from accel_good.op_builder.optimizers import PlainTorch
from simulated import Good

from accel_ops.fused_optimizers import multi_tensor_adam

_RUNTIME = torch_npu.npu
_ASKING = "asynchrony.asking_does_not_wait"
_QUEUEING = "asynchrony.queueing_does_not_wait"


class Waits(Good):
    """The file whose checks are about calls that do not wait."""

    files = ("test_asynchrony.py",)


class RangesSynchronize(Waits):
    fails = (f"{_ASKING}[range_push(), range_pop()]",)

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        self.synchronize()


class AskingForMemorySynchronizes(Waits):
    fails = (f"{_ASKING}[memory_allocated()]",)

    def memory_allocated(self, device_index: int | None = None) -> int:
        self.synchronize()
        return super().memory_allocated(device_index)


class StreamsAreLeftWhenDone(Waits):
    fails = (
        f"{_QUEUEING}[event.wait() of another stream]",
        f"{_QUEUEING}[stream(s), entered and left]",
    )

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        with super().stream(stream):
            yield
        self.synchronize()


class _HostWaits(_RUNTIME.Event):  # type: ignore[misc]
    def wait(self, stream: Any = None) -> None:
        self.synchronize()


class EventsMakeTheHostWait(Waits):
    fails = (
        f"{_QUEUEING}[event.wait() of another stream]",
        f"{_QUEUEING}[event.wait(stream)]",
        f"{_QUEUEING}[stream.wait_event(event)]",
    )

    @property
    def Event(self) -> Any:
        return _HostWaits


class ReplaySynchronizes(Waits):
    fails = ("asynchrony.replay_does_not_wait",)

    def replay_graph(self, graph: Any) -> None:
        super().replay_graph(graph)
        self.synchronize()


class _Synchronized(PlainTorch):
    """Fused Adam, which waits for its kernel."""

    NAME = "fused_adam"

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace(multi_tensor_adam=_synchronized)


def _synchronized(*arguments: Any) -> None:
    multi_tensor_adam(*arguments)
    _RUNTIME.synchronize()


class StepsSynchronize(Waits):
    fails = ("asynchrony.step_does_not_wait[FusedAdamBuilder]",)

    def get_op_builder(self, class_name: str) -> Any:
        return _Synchronized if class_name == "FusedAdamBuilder" else TABLE.builder(class_name, "npu", {})


VARIANTS: tuple[Any, ...] = (
    RangesSynchronize,
    AskingForMemorySynchronizes,
    StreamsAreLeftWhenDone,
    EventsMakeTheHostWait,
    ReplaySynchronizes,
    StepsSynchronize,
)
