# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builders that serve every device; Adam's names a source, so that there is one to look for."""
# ruff: noqa: F401  DeepSpeed finds them by their names

from accel_ops import fused_optimizers
from accel_ops.fp_quantizer import FPQuantizerBuilder
from accel_ops.fused_optimizers import FusedLambBuilder, FusedLionBuilder
from accel_ops.inference import InferenceBuilder, InferenceCoreBuilder
from accel_ops.op_builder import (
    CPUAdagradBuilder,
    CPUAdamBuilder,
    CPULionBuilder,
    PinMemoryBuilder,
    UtilsBuilder,
)
from accel_ops.plain import EvoformerAttnBuilder, PackbitsBuilder, RandomLTDBuilder, SpatialInferenceBuilder
from accel_ops.quantizer import QuantizerBuilder


class FusedAdamBuilder(fused_optimizers.FusedAdamBuilder):
    """Adam over lists of tensors."""

    def sources(self):
        """One."""
        return ["csrc/nothing.c"]
