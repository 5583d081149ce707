# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: its CUDA kernels where they can be compiled, plain torch where not."""

from __future__ import annotations

from accel_core.op_builder import inference
from accel_cuda.op_builder.kernels import KernelOrPlainBuilder


class InferenceBuilder(KernelOrPlainBuilder):
    """For models into which deepspeed.init_inference injects kernels."""

    NAME = inference.InferenceBuilder.NAME
    BUILD_VAR = inference.InferenceBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.transformer_inference.InferenceBuilder",)
    plain = inference.InferenceBuilder


class InferenceCoreBuilder(KernelOrPlainBuilder):
    """For the kernels of deepspeed.inference.v2."""

    NAME = inference.InferenceCoreBuilder.NAME
    BUILD_VAR = inference.InferenceCoreBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.inference_core_ops.InferenceCoreBuilder",)
    plain = inference.InferenceCoreBuilder
