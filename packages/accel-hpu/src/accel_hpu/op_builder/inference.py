# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: RMS norms with Habana's op, others in plain torch."""

from __future__ import annotations

from typing import ClassVar

import torch

from accel_ops import inference
from accel_ops.inference import FusedFunctions


def rms_norm(vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the RMS norm over the last dimension."""
    normed: torch.Tensor = torch.ops.hpu.rms_norm(vals, gamma, epsilon)[0]
    return normed.to(vals.dtype)  # float32 if gamma has another dtype than vals


def core_rms_norm(
    norm_output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> None:
    """norm_output = RMS norm of norm_input; they may be the same tensor."""
    norm_output.copy_(rms_norm(norm_input, gamma, epsilon))


class InferenceBuilder(inference.InferenceBuilder):
    """Builder of the kernels that deepspeed.init_inference injects into models."""

    FUSED: ClassVar[FusedFunctions] = {"rms_norm": ("hpu.rms_norm", rms_norm)}


class InferenceCoreBuilder(inference.InferenceCoreBuilder):
    """Builder of the kernels of deepspeed.inference.v2."""

    FUSED: ClassVar[FusedFunctions] = {"rms_norm": ("hpu.rms_norm", core_rms_norm)}
