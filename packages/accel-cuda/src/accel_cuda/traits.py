# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what a CUDA or ROCm device cannot do."""

from __future__ import annotations

from accel_core.vendor import Feature, Trait

TRAITS: dict[str, Trait] = {}

#: Added for a torch that is built for ROCm.
ROCM: dict[str, Trait] = {
    Feature.TRITON: Trait.unsupported("importing Triton breaks DeepSpeed's use of the device on ROCm")
}

#: Added for a card without a compute capability.
NO_CAPABILITY: dict[str, Trait] = {
    Feature.TRITON: Trait.unsupported("unknown: neither NVML nor torch.cuda reports a compute capability")
}
