# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as sources for one device, in plain torch for every device."""

from accel_core.op_builder.plain.evoformer import EvoformerAttnBuilder
from accel_core.op_builder.plain.fp_quantizer import FPQuantizerBuilder
from accel_core.op_builder.plain.pack_bits import PackbitsBuilder
from accel_core.op_builder.plain.random_ltd import RandomLTDBuilder
from accel_core.op_builder.plain.spatial import SpatialInferenceBuilder

__all__ = [
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
]
