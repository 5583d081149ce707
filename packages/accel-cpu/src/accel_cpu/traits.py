# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a CPU can not do, or this package has not written yet: read by code, conformance skips and docs."""

from __future__ import annotations

from accel_core.vendor import Support, Trait

_LATER = "its kernel is not part of this release"
_GPU_ONLY = "DeepSpeed has this op as GPU kernels only; PyTorch's own operators compute the same on a CPU"


def _not_implemented(reason: str) -> Trait:
    return Trait(Support.NOT_IMPLEMENTED, reason)


def _unsupported(reason: str) -> Trait:
    return Trait(Support.UNSUPPORTED, reason)


TRAITS: dict[str, Trait] = {
    "streams": _unsupported(
        "every operation on a CPU is done when its call returns; Stream and Event are None"
    ),
    "graphs": _unsupported("a CPU launches nothing that could be recorded; a capture runs the code inside"),
    "triton": _unsupported("Triton compiles for GPUs"),
    "pinned_memory": _unsupported("there is no device to copy to; pin_memory gives the tensor itself"),
    "indexed_devices": _unsupported("torch has one cpu device; device() and device_name() drop the index"),
    "AsyncIOBuilder": _not_implemented(_LATER),
    "CCLCommBuilder": _not_implemented(
        f"{_LATER}; torch.distributed's ccl or gloo backend serves collectives"
    ),
    "ShareMemCommBuilder": _not_implemented(f"{_LATER}; torch.distributed's gloo backend serves collectives"),
    "GDSBuilder": _unsupported("GPUDirect Storage moves data between disk and GPU memory"),
    "UtilsBuilder": _not_implemented("torch._utils flattens and unflattens tensors"),
    **{
        name: _not_implemented(_GPU_ONLY)
        for name in (
            "DeepCompileBuilder",
            "EvoformerAttnBuilder",
            "FPQuantizerBuilder",
            "FusedLambBuilder",
            "FusedLionBuilder",
            "InferenceBuilder",
            "InferenceCoreBuilder",
            "InferenceCutlassBuilder",
            "QuantizerBuilder",
            "RaggedOpsBuilder",
            "RaggedUtilsBuilder",
            "RandomLTDBuilder",
            "SparseAttnBuilder",
            "SpatialInferenceBuilder",
            "StochasticTransformerBuilder",
            "TransformerBuilder",
        )
    },
}
