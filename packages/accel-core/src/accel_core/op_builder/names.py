# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builder names of DeepSpeed 0.18 and 0.19."""

from __future__ import annotations

from accel_core.vendor import Trait

#: Ops that upstream has for CUDA devices alone, as CUDA sources.
CUDA_ONLY = (
    "DeepCompileBuilder",
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "GDSBuilder",
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

#: Ops that run on the host whatever the device; accel-host serves them.
HOST = ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "PinMemoryBuilder", "UtilsBuilder")
#: Fused optimizers of the device; `accel_core.op_builder.fused` has them in plain torch.
FUSED = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder")
#: Functions of inference; `accel_core.op_builder.inference` has them in plain torch.
INFERENCE = ("InferenceBuilder", "InferenceCoreBuilder")

#: Ops that upstream has for one other kind of device alone.
ONE_DEVICE = ("CCLCommBuilder", "FlashAttentionBuilder", "ShareMemCommBuilder")

#: All but those of `ONE_DEVICE`: an accelerator serves each, or says why not.
UPSTREAM = tuple(sorted((*CUDA_ONLY, *HOST, *FUSED, *INFERENCE, "AsyncIOBuilder")))


def cuda_only() -> dict[str, Trait]:
    """A trait for each op of `CUDA_ONLY`, for the traits of a device that runs no CUDA."""
    return dict.fromkeys(CUDA_ONLY, Trait.unsupported("DeepSpeed has this op as CUDA sources only"))
