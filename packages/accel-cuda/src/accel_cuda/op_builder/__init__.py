# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of CUDA devices: torch's operators, our kernels, DeepSpeed's own sources, and plain torch behind them."""

from accel_core.op_builder import OpTable
from accel_core.op_builder.names import CUDA_ONLY, FILE_IO, FUSED, HOST, INFERENCE, PLAIN

TABLE = OpTable.from_modules(
    __name__, host=(*HOST, *FILE_IO), fused=FUSED, inference=INFERENCE, plain=PLAIN, kernels=CUDA_ONLY
)
