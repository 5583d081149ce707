# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as CUDA sources, in plain torch; the quantizer also with torch_npu's op."""

from accel_npu.op_builder.quantizer import QuantizerBuilder
from accel_ops.plain import (
    EvoformerAttnBuilder,
    FPQuantizerBuilder,
    PackbitsBuilder,
    RandomLTDBuilder,
    SpatialInferenceBuilder,
)

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "QuantizerBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
