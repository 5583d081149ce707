# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of fused optimizers: the vendor's op where its runtime has one, plain torch elsewhere."""

import pytest
import torch

from accel_core.op_builder import self_test
from accel_ops import fused_optimizers


@pytest.mark.parametrize(
    ("builder", "function", "plain"),
    [
        (fused_optimizers.FusedAdamBuilder, "multi_tensor_adam", fused_optimizers.multi_tensor_adam),
        (fused_optimizers.FusedLambBuilder, "lamb", fused_optimizers.lamb),
        (fused_optimizers.FusedLionBuilder, "multi_tensor_lion", fused_optimizers.multi_tensor_lion),
    ],
)
def test_without_a_fused_op_plain_torch_serves_and_passes_the_self_test(builder, function, plain) -> None:  # type: ignore[no-untyped-def]
    assert builder().is_compatible()
    assert builder().reason.startswith("plain torch")
    op = builder().load()
    assert getattr(op, function) is plain
    assert self_test.run(builder.NAME, op, torch.device("cpu")) == "loaded and run on a tiny input"


def through_op(*args: object) -> str:
    return "through the op"


class Present(fused_optimizers.FusedAdamBuilder):
    FUSED_OP = "aten.add"
    fused = staticmethod(through_op)


class Absent(fused_optimizers.FusedAdamBuilder):
    FUSED_OP = "aten.no_such_op"
    fused = staticmethod(through_op)


def test_the_op_is_called_where_the_runtime_has_it() -> None:
    assert Present().reason == "torch.ops.aten.add"
    assert Present().load().multi_tensor_adam() == "through the op"


def test_a_runtime_without_the_op_falls_back_and_says_which_op_it_lacks() -> None:
    assert "torch.ops.aten.no_such_op" in Absent().reason
    assert Absent().load().multi_tensor_adam is fused_optimizers.multi_tensor_adam
