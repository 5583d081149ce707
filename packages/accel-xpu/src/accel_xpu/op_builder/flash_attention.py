# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Attention for Megatron-DeepSpeed on Intel GPUs, which asks DeepSpeed for this builder."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn import functional
from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder


class FlashAttention:
    """The loaded op."""

    def flash_attn_func_v2(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dropout_p: float,
        softmax_scale: float,
        is_causal: bool,
    ) -> torch.Tensor:
        """Return the attention of (batch, heads, tokens, width) tensors, by torch's scaled_dot_product_attention."""
        return functional.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout_p, is_causal=is_causal, scale=softmax_scale
        )


class FlashAttentionBuilder(OpBuilder):
    """`flash_attn_func_v2`, with torch's kernels for xpu; nothing is compiled."""

    NAME = "flash_attn"
    BUILD_VAR = "DS_BUILD_FlashAttention"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True."""
        return True, "torch.nn.functional.scaled_dot_product_attention"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's function."""
        return FlashAttention()
