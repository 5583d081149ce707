# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what an Apple GPU cannot do, or this package does not implement."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Feature, Trait

TRAITS: dict[str, Trait] = {
    **cuda_only(),
    Feature.INDEXED_DEVICES: Trait.unsupported(
        "torch knows one Apple GPU; device() and device_name() drop the index"
    ),
    Feature.VISIBLE_DEVICES: Trait.unsupported("a Mac has one GPU, and no variable hides it"),
    Feature.STREAMS: Trait.unsupported("all work goes into one queue of torch.mps, in order; Stream is None"),
    Feature.GRAPHS: Trait.unsupported("torch.mps records no graphs; a capture runs the code inside"),
    Feature.PINNED_MEMORY: Trait.unsupported("host and GPU share memory; pin_memory gives the tensor itself"),
    Feature.FP64: Trait.unsupported("Metal has no double precision"),
    Feature.TRITON: Trait.unsupported("Triton does not compile for Metal"),
    Feature.ZERO3_RANKS: Trait.unsupported(
        "DeepSpeed 0.19.8 computes wrong gradients at ZeRO 3 over several ranks: "
        "the input of its reduce-scatter overwrites the result"
    ),
}

_BEFORE_MACOS_14: dict[str, Trait] = {
    Feature.BF16: Trait.unsupported("macOS computes in bfloat16 from version 14 on")
}
_BEFORE_TORCH_2_13: dict[str, Trait] = {
    Feature.MEMORY_PEAKS: Trait.unsupported(
        "torch before 2.13 keeps no peaks for mps; the highest value that was read is returned"
    )
}


def of_machine(*, bf16: bool, peaks: bool) -> dict[str, Trait]:
    """Return the traits for this macOS and this torch."""
    return {**TRAITS, **({} if bf16 else _BEFORE_MACOS_14), **({} if peaks else _BEFORE_TORCH_2_13)}
