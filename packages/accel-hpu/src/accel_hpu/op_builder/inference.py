# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: RMS norms with Habana's op, others in plain torch."""

from __future__ import annotations

import torch

from accel_ops.inference import INFERENCE, INFERENCE_CORE
from accel_ops.op import runtime_ops


def rms_norm(vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the RMS norm over the last dimension."""
    normed: torch.Tensor = torch.ops.hpu.rms_norm(vals, gamma, epsilon)[0]
    return normed.to(vals.dtype)  # float32 if gamma has another dtype than vals


InferenceBuilder = INFERENCE.builder(
    __name__, runtime_ops(INFERENCE, {"rms_norm": ("hpu.rms_norm", rms_norm)})
)
InferenceCoreBuilder = INFERENCE_CORE.builder(
    __name__, runtime_ops(INFERENCE_CORE, {"_rms_normed": ("hpu.rms_norm", rms_norm)})
)
