# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what an Intel GPU cannot do, or this package does not implement."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Feature, Trait

TRAITS: dict[str, Trait] = {
    **cuda_only(),
    Feature.DEFAULT_STREAM: Trait.unsupported("torch.xpu has none; the current stream stands for it"),
    Feature.TRITON: Trait.not_implemented(
        "DeepSpeed's Triton kernels are written for and tried on CUDA devices"
    ),
}

#: Added where this torch has no torch.xpu.XPUGraph.
NO_GRAPHS: dict[str, Trait] = {
    Feature.GRAPHS: Trait.unsupported("this torch has no graphs for XPU; a capture runs the code inside")
}
