# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of CUDA devices: torch's operators, our kernels, DeepSpeed's own sources, and plain torch behind them."""

from accel_core.op_builder.names import CUDA_ONLY, FUSED, INFERENCE
from accel_ops.table import op_table

TABLE = op_table(
    {
        f"{__name__}.fused": FUSED,
        f"{__name__}.inference": INFERENCE,
        f"{__name__}.kernels": CUDA_ONLY,
        f"{__name__}.mixed": (
            "EvoformerAttnBuilder",
            "FPQuantizerBuilder",
            "RandomLTDBuilder",
            "SpatialInferenceBuilder",
        ),
        f"{__name__}.quantizer": ("QuantizerBuilder",),
    }
)
