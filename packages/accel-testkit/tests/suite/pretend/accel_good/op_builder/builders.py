# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builders that serve every device; Adam's names a source, so that there is one to look for."""
# ruff: noqa: F401  DeepSpeed finds them by their names

from accel_ops.inference import InferenceBuilder, InferenceCoreBuilder
from accel_ops.memory import PinMemoryBuilder, UtilsBuilder
from accel_ops.optimizers import fused
from accel_ops.optimizers.fused import FusedLambBuilder, FusedLionBuilder
from accel_ops.optimizers.host import CPUAdagradBuilder, CPUAdamBuilder, CPULionBuilder
from accel_ops.quantizers.fp_quantizer import FPQuantizerBuilder
from accel_ops.quantizers.quantizer import QuantizerBuilder
from accel_ops.torch_fallbacks import (
    EvoformerAttnBuilder,
    PackbitsBuilder,
    RandomLTDBuilder,
    SpatialInferenceBuilder,
)


class FusedAdamBuilder(fused.FusedAdamBuilder):
    """Adam over lists of tensors."""

    def sources(self):
        """One."""
        return ["csrc/nothing.c"]
