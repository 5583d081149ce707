# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops with a fall-back to plain torch; the quantizer is in its own file, with kernels."""

from accel_cuda.op_builder.mixed import (
    EvoformerAttnBuilder,
    FPQuantizerBuilder,
    RandomLTDBuilder,
    SpatialInferenceBuilder,
)
from accel_cuda.op_builder.quantizer import QuantizerBuilder
from accel_ops.plain import PackbitsBuilder

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "QuantizerBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
