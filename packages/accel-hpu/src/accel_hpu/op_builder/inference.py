# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: root mean square norms on Habana's op, others in plain torch."""

from __future__ import annotations

from typing import ClassVar

import torch

from accel_core.op_builder import inference
from accel_core.op_builder.inference import FusedFunctions


def rms_norm(vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Root mean square layer norm over the last dimension."""
    normed: torch.Tensor = torch.ops.hpu.rms_norm(vals, gamma, epsilon)[0]
    return normed.to(vals.dtype)  # float32 where gamma has another type than vals


def core_rms_norm(
    norm_output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> None:
    """norm_output may be norm_input."""
    norm_output.copy_(rms_norm(norm_input, gamma, epsilon))


class InferenceBuilder(inference.InferenceBuilder):
    """For models into which deepspeed.init_inference injects kernels."""

    FUSED: ClassVar[FusedFunctions] = {"rms_norm": ("hpu.rms_norm", rms_norm)}


class InferenceCoreBuilder(inference.InferenceCoreBuilder):
    """For the kernels of deepspeed.inference.v2."""

    FUSED: ClassVar[FusedFunctions] = {"rms_norm": ("hpu.rms_norm", core_rms_norm)}
