# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: its CUDA kernels if they can be compiled, else plain torch."""

from __future__ import annotations

from accel_cuda.op_builder.kernels import or_plain
from accel_ops import inference

InferenceBuilder = or_plain(inference.InferenceBuilder, "transformer_inference")
InferenceCoreBuilder = or_plain(inference.InferenceCoreBuilder, "inference_core_ops")
