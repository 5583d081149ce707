# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of CUDA devices: torch's operators, our kernels, DeepSpeed's own sources, and plain torch behind them."""

from accel_core.op_builder.names import CUDA_ONLY, INFERENCE
from accel_ops.table import op_table

TABLE = op_table(
    {
        f"{__name__}.ours": ("FusedAdamBuilder", "FusedLionBuilder", "QuantizerBuilder"),
        f"{__name__}.kernels": (
            *CUDA_ONLY,
            *INFERENCE,
            "FusedLambBuilder",
            "EvoformerAttnBuilder",
            "FPQuantizerBuilder",
            "RandomLTDBuilder",
            "SpatialInferenceBuilder",
        ),
    }
)
