# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as CUDA sources, in plain torch; fp_quantizer also with Habana's casts."""

from accel_hpu.op_builder.fp_quantizer import FPQuantizerBuilder
from accel_ops.plain import EvoformerAttnBuilder, PackbitsBuilder, RandomLTDBuilder, SpatialInferenceBuilder
from accel_ops.quantizer import QuantizerBuilder

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "QuantizerBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
