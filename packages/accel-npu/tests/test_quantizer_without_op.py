# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer where torch_npu, or its op, is not there."""

from __future__ import annotations

from accel_npu.op_builder.quantizer import QuantizerBuilder


def test_without_the_op_the_quantizer_is_plain_torch() -> None:
    builder = QuantizerBuilder()
    wanted = "plain torch: this runtime has no torch.ops.npu.npu_dynamic_quant"
    assert builder.reason == wanted
    assert builder.load().__class__.__name__ == "QuantizerFunctions"
    assert builder.reason == wanted
