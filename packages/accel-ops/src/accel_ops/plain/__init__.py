# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as sources for one device, in plain torch for every device."""

from accel_ops.plain.evoformer import EvoformerAttnBuilder
from accel_ops.plain.fp_quantizer import FPQuantizerBuilder
from accel_ops.plain.small_ops import PackbitsBuilder, RandomLTDBuilder, SpatialInferenceBuilder

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
