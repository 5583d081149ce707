# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as CUDA sources, in plain torch."""

from accel_ops.plain import (
    EvoformerAttnBuilder,
    FPQuantizerBuilder,
    PackbitsBuilder,
    RandomLTDBuilder,
    SpatialInferenceBuilder,
)
from accel_ops.quantizer import QuantizerBuilder

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "QuantizerBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
