# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an NPU can not do, or this package has not written yet: read by code, conformance skips and docs."""

from __future__ import annotations

from accel_core.vendor import Support, Trait

_LATER = "torch_npu has fused ops for it; their builder is not part of this release"
_CUDA_ONLY = "DeepSpeed has this op as CUDA kernels only"

TRAITS: dict[str, Trait] = {
    "triton": Trait(Support.UNSUPPORTED, "stock Triton does not compile for Ascend"),
    **{
        name: Trait(Support.NOT_IMPLEMENTED, _LATER)
        for name in ("FusedLambBuilder", "FusedLionBuilder", "InferenceBuilder", "InferenceCoreBuilder")
    },
    "AsyncIOBuilder": Trait(Support.NOT_IMPLEMENTED, "file I/O is not part of this release"),
    **{
        name: Trait(Support.UNSUPPORTED, _CUDA_ONLY)
        for name in (
            "DeepCompileBuilder",
            "EvoformerAttnBuilder",
            "FPQuantizerBuilder",
            "GDSBuilder",
            "InferenceCutlassBuilder",
            "QuantizerBuilder",
            "RaggedOpsBuilder",
            "RaggedUtilsBuilder",
            "RandomLTDBuilder",
            "SpatialInferenceBuilder",
            "StochasticTransformerBuilder",
            "TransformerBuilder",
        )
    },
}
