# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an Apple GPU cannot do, or this package has not written yet: read by code, conformance skips and docs."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Trait

TRAITS: dict[str, Trait] = {
    **cuda_only(),
    "indexed_devices": Trait.unsupported(
        "torch knows one Apple GPU; device() and device_name() drop the index"
    ),
    "streams": Trait.unsupported("torch.mps puts all work into one queue, in order; Stream is None"),
    "graphs": Trait.unsupported("torch.mps records no graphs; a capture runs the code inside"),
    "pinned_memory": Trait.unsupported("host and GPU share memory; pin_memory gives the tensor itself"),
    "fp64": Trait.unsupported("Metal has no double precision"),
    "triton": Trait.unsupported("Triton does not compile for Metal"),
    "zero3_ranks": Trait.unsupported(
        "DeepSpeed 0.19.8's own host copies of mps tensors give wrong gradients at ZeRO 3 over several ranks: "
        "a reduce-scatter into a part of its input is overwritten by that input"
    ),
    "AsyncIOBuilder": Trait.not_implemented("file I/O is not part of this release"),
}

_BEFORE_MACOS_14: dict[str, Trait] = {
    "bf16": Trait.unsupported("macOS computes in bfloat16 from version 14 on")
}
_BEFORE_TORCH_2_13: dict[str, Trait] = {
    "memory_peaks": Trait.unsupported(
        "torch before 2.13 keeps no peaks for mps; the highest figure that was asked for stands in"
    ),
}


def of_machine(*, bf16: bool, peaks: bool) -> dict[str, Trait]:
    """The traits with this macOS and this torch."""
    return {**TRAITS, **({} if bf16 else _BEFORE_MACOS_14), **({} if peaks else _BEFORE_TORCH_2_13)}
