# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""fp_quantizer where Habana's casts are not there."""

from __future__ import annotations

from accel_hpu.op_builder.fp_quantizer import FPQuantizerBuilder


def test_without_the_casts_fp_quantizer_is_plain_torch() -> None:
    builder = FPQuantizerBuilder()
    wanted = "plain torch: this runtime has no torch.ops.hpu.cast_to_fp8_v2"
    assert builder.reason == wanted
    assert builder.load().__class__.__name__ == "FPQuantizerFunctions"
    assert builder.reason == wanted
