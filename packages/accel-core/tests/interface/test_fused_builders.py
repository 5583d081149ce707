# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of fused optimizers: the vendor's op where its runtime has one, plain torch elsewhere."""

from __future__ import annotations

import pytest

from accel_core.op_builder import fused
from accel_core.op_builder.steps import adam, lamb, lion


@pytest.mark.parametrize(
    ("builder", "function", "plain"),
    [
        (fused.FusedAdamBuilder, "multi_tensor_adam", adam.multi_tensor_adam),
        (fused.FusedLambBuilder, "lamb", lamb.lamb),
        (fused.FusedLionBuilder, "multi_tensor_lion", lion.multi_tensor_lion),
    ],
)
def test_without_a_fused_op_plain_torch_serves(builder, function, plain) -> None:  # type: ignore[no-untyped-def]
    assert builder().is_compatible()
    assert builder().reason.startswith("plain torch")
    assert getattr(builder().load(), function) is plain


def through_op(*args: object) -> str:
    return "through the op"


class Present(fused.FusedAdamBuilder):
    FUSED_OP = "aten.add"
    fused = staticmethod(through_op)


class Absent(fused.FusedAdamBuilder):
    FUSED_OP = "aten.no_such_op"
    fused = staticmethod(through_op)


def test_the_op_is_called_where_the_runtime_has_it() -> None:
    assert Present().reason == "torch.ops.aten.add"
    assert Present().load().multi_tensor_adam() == "through the op"


def test_a_runtime_without_the_op_falls_back_and_says_which_op_it_lacks() -> None:
    assert "torch.ops.aten.no_such_op" in Absent().reason
    assert Absent().load().multi_tensor_adam is adam.multi_tensor_adam
