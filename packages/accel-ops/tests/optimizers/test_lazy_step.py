# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels for the types that torch's operators refuse: looked for when such types come, and not before."""

from typing import Any, ClassVar

import pytest
import torch

from accel_ops import fused_optimizers
from accel_ops.fused_optimizers import AdamStep, Lists, Step
from accel_ops.kernel_builders import TorchFusedAdamBuilder

HOST = "cpu"
HALVES = (torch.bfloat16, torch.bfloat16, torch.float32, torch.float32)
ALIKE = (torch.float32,) * 4


class Builder(TorchFusedAdamBuilder):
    """A device whose kernels are plain torch: found, works and captures say what happens."""

    DEVICE_TYPE = HOST
    found = 0
    works, captures = True, False
    taken: ClassVar[list[AdamStep]] = []

    def expected(self) -> str:
        return "kernels if they work"

    def fallback_step(self) -> tuple[Step, str]:
        self.found += 1
        return (
            (self.kernels, "kernels")
            if self.works
            else (fused_optimizers.adam_step, "plain torch (no kernels: why)")
        )

    def kernels(self, lists: Lists, constants: AdamStep) -> None:
        self.taken.append(constants)
        fused_optimizers.adam_step(lists, constants)

    def busy(self) -> bool:
        return self.captures


@pytest.fixture
def builder() -> Builder:
    Builder.taken.clear()
    return Builder()


def take(op: Any, *kinds: torch.dtype, strided: bool = False) -> None:
    def lists() -> list[list[torch.Tensor]]:
        made = [torch.arange(2, 14).view(4, 3).div(7).to(kind) for kind in kinds]
        return [[tensor.t() if strided else tensor] for tensor in made]

    found, wanted = lists(), lists()
    for function, given in ((op.multi_tensor_adam, found), (fused_optimizers.multi_tensor_adam, wanted)):
        function(2048, torch.zeros(1), given, 0.1, 0.9, 0.99, 1e-8, 3, 1, 1, 0.1)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_kernels_are_looked_for_once_when_types_come_that_only_they_take(builder: Builder) -> None:
    op = builder.load()
    for kinds, strided in ((ALIKE, False), (ALIKE, True), (HALVES, True), ((torch.float64,) * 4, False)):
        take(op, *kinds, strided=strided)
    assert (builder.found, builder.taken) == (0, [])
    assert "; kernels if they work for mixed types" in builder.reason
    for _ in range(2):
        take(op, *HALVES)
    assert (builder.found, len(builder.taken)) == (1, 2)
    assert "; kernels for mixed types" in builder.reason


def test_kernels_that_do_not_work_give_way_to_plain_torch_with_their_reason(builder: Builder) -> None:
    builder.works = False
    op = builder.load()
    for _ in range(2):
        take(op, *HALVES)
    assert builder.found == 1
    assert "; plain torch (no kernels: why) for mixed types" in builder.reason


def test_nothing_is_tried_while_a_graph_is_captured(builder: Builder) -> None:
    op, builder.captures = builder.load(), True
    take(op, *HALVES)
    assert (builder.found, builder.taken) == (0, [])
    builder.captures = False
    take(op, *HALVES)
    assert (builder.found, len(builder.taken)) == (1, 1)


def test_preparing_a_machine_finds_the_route(builder: Builder) -> None:
    builder.load()
    builder.prepare()
    assert builder.found == 1
    assert "; kernels for mixed types" in builder.reason


def test_kernels_are_looked_for_at_load_where_torch_s_operators_do_not_work(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accel_ops import kernel_builders

    monkeypatch.setattr(
        kernel_builders, "self_check", lambda device_type: kernel_builders.Checked((), "they are gone")
    )
    op = builder.load()
    assert builder.reason == "kernels: they are gone"
    take(op, *ALIKE)
    assert (builder.found, len(builder.taken)) == (1, 1)
