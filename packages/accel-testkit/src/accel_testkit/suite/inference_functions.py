# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's functions of the two inference ops that DeepSpeed has no torch code for."""

from __future__ import annotations

from typing import Any

import torch

#: Functions of `transformer_inference`, with their float type where upstream has one of each.
TRANSFORMER = (
    "allocate_workspace_fp32", "apply_rotary_pos_emb", "linear_layer_fp32", "mlp_gemm_fp32", "pre_rms_norm",
    "release_workspace", "repeat_kv_cache_fp32", "reset_cache", "retake_workspace", "rms_norm", "rms_qkv_gemm_fp32",
    "softmax_context_fp32",
)  # fmt: skip
#: Functions of `inference_core_ops`.
CORE = (
    "bias_activation", "blas_linear", "create_handle", "gated_activation", "layer_norm", "post_layer_norm",
    "pre_layer_norm", "rms_norm", "rms_pre_norm",
)  # fmt: skip
_SUFFIXES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def typed(op: Any, name: str, dtype: torch.dtype) -> Any:
    """Return a function of `transformer_inference` for one float type."""
    return getattr(op, f"{name}_{_SUFFIXES[dtype]}")
