# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builder names of DeepSpeed 0.18 and 0.19."""

from __future__ import annotations

from accel_core.vendor import Trait

#: Ops that upstream has as CUDA sources (one as SYCL sources, in 0.18), and `accel_ops` in plain torch.
PLAIN = (
    "EvoformerAttnBuilder",
    "FPQuantizerBuilder",
    "PackbitsBuilder",
    "QuantizerBuilder",
    "RandomLTDBuilder",
    "SpatialInferenceBuilder",
)

#: Ops that upstream has as CUDA sources only.
CUDA_ONLY = (
    "DeepCompileBuilder",
    "GDSBuilder",
    "InferenceCutlassBuilder",
    "RaggedOpsBuilder",
    "RaggedUtilsBuilder",
    "SparseAttnBuilder",
    "StochasticTransformerBuilder",
    "TransformerBuilder",
)

#: Ops that run on the host for every device; accel-ops has them.
HOST = ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "PinMemoryBuilder", "UtilsBuilder")
#: File I/O, which also runs on the host for every device; accel-ops has it.
FILE_IO = ("AsyncIOBuilder",)
#: Fused optimizers; `accel_ops.optimizers.fused` has them in plain torch.
FUSED = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder")
#: Inference functions; `accel_ops.inference` has them in plain torch.
INFERENCE = ("InferenceBuilder", "InferenceCoreBuilder")

#: Ops that upstream has for one other device type only.
ONE_DEVICE = ("CCLCommBuilder", "FlashAttentionBuilder", "ShareMemCommBuilder")

#: All except `ONE_DEVICE`: an accelerator has each of them, or a reason why not.
UPSTREAM = tuple(sorted((*CUDA_ONLY, *PLAIN, *HOST, *FUSED, *INFERENCE, *FILE_IO)))


def cuda_only() -> dict[str, Trait]:
    """Return a trait for each op of `CUDA_ONLY`, for devices that cannot run CUDA sources."""
    return dict.fromkeys(CUDA_ONLY, Trait.unsupported("DeepSpeed has this op as CUDA sources only"))
