# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as CUDA sources, in plain torch; the quantizer also with kernels."""

from accel_ops.plain import (
    EvoformerAttnBuilder,
    FPQuantizerBuilder,
    PackbitsBuilder,
    RandomLTDBuilder,
    SpatialInferenceBuilder,
)
from accel_xpu.op_builder.quantizer import QuantizerBuilder

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "QuantizerBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
