# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what a CPU cannot do, or this package does not implement."""

from __future__ import annotations

from accel_core.op_builder.names import CUDA_ONLY
from accel_core.vendor import Feature, Trait

_GPU_ONLY = "DeepSpeed has this op as GPU kernels only; PyTorch's own operators compute the same on a CPU"

TRAITS: dict[str, Trait] = {
    Feature.STREAMS: Trait.unsupported(
        "every operation on a CPU is done when its call returns; Stream is None"
    ),
    Feature.EVENTS: Trait.unsupported(
        "every operation on a CPU is done when its call returns; Event is None"
    ),
    Feature.GRAPHS: Trait.unsupported(
        "a CPU launches nothing that could be recorded; a capture runs the code inside"
    ),
    Feature.TRITON: Trait.unsupported("Triton compiles for GPUs"),
    Feature.PINNED_MEMORY: Trait.unsupported(
        "there is no device to copy to; pin_memory gives the tensor itself"
    ),
    Feature.INDEXED_DEVICES: Trait.unsupported(
        "torch has one cpu device; device() and device_name() drop the index"
    ),
    **dict.fromkeys(CUDA_ONLY, Trait.not_implemented(_GPU_ONLY)),
    "GDSBuilder": Trait.unsupported("GPUDirect Storage moves data between disk and GPU memory"),
}
