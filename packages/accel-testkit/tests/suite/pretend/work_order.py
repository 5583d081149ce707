# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variants whose work is in the wrong stream, on the simulated NPU: `python -m simulated` runs them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch_npu
from accel_good.op_builder import TABLE
from accel_good.op_builder.optimizers import PlainTorch
from simulated import Good

from accel_ops.fused_optimizers import multi_tensor_adam

_RUNTIME = torch_npu.npu
_RESOLVED = "asynchrony.resolved_dependency_needs_no_wait"
_REPLAY = "asynchrony.replay_is_in_the_current_stream"


class Ordered(Good):
    """The file whose checks are about the order of work."""

    files = ("test_asynchrony.py",)


class DependenciesAreResolvedByNobody(Ordered):
    fails = (
        f"{_RESOLVED}[a read after a write in the default stream]",
        f"{_RESOLVED}[a read after a write]",
        f"{_RESOLVED}[a write after a read]",
        f"{_RESOLVED}[memory used again]",
    )

    def resolves_data_dependency(self) -> bool:
        return True


class ReplayIsInTheDefaultStream(Ordered):
    fails = (f"{_REPLAY}[chosen stream]",)

    def replay_graph(self, graph: Any) -> None:
        with self.stream(self.default_stream()):
            super().replay_graph(graph)


class ReplayIsInAStreamOfItsOwn(Ordered):
    fails = (f"{_REPLAY}[chosen stream]", f"{_REPLAY}[default stream]")

    def replay_graph(self, graph: Any) -> None:
        with self.stream(self.Stream()):
            super().replay_graph(graph)


class _InTheDefaultStream(PlainTorch):
    """Fused Adam, whose kernel is launched in the default stream."""

    NAME = "fused_adam"

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace(multi_tensor_adam=self._step)

    @staticmethod
    def _step(*arguments: Any) -> None:
        with _RUNTIME.stream(_RUNTIME.default_stream()):
            multi_tensor_adam(*arguments)


class AdamIsInTheDefaultStream(Good):
    files = ("test_op_devices.py",)
    fails = ("op_devices.step_is_in_the_current_stream[FusedAdamBuilder]",)

    def __init__(self) -> None:
        super().__init__()
        self.op_table = TABLE

    def get_op_builder(self, class_name: str) -> Any:
        return _InTheDefaultStream if class_name == "FusedAdamBuilder" else super().get_op_builder(class_name)


VARIANTS: tuple[Any, ...] = (
    AdamIsInTheDefaultStream,
    DependenciesAreResolvedByNobody,
    ReplayIsInTheDefaultStream,
    ReplayIsInAStreamOfItsOwn,
)
