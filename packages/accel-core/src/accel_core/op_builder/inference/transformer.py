# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of `transformer_inference`, which DeepSpeed calls in models with injected kernels.

Only functions for which DeepSpeed has no torch code, or code that is wrong for some models: its attention
assumes as many key-value heads as heads and does not rotate interleaved channels, and its MLP supports only
GELU. For the others DeepSpeed uses its own torch code.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

import torch
from torch.nn import functional

from accel_core.errors import FunctionNotImplemented
from accel_core.op_builder.functions import OpFunctions
from accel_core.op_builder.inference import attention
from accel_core.op_builder.inference.core_ops import GELU, RELU, activated, layer_normed, rms_normed
from accel_core.op_builder.inference.kv_cache import KVCache

#: Keys: values of deepspeed.utils.types.ActivationFuncType. Gated activations have separate functions.
_ACTIVATIONS = {1: GELU, 2: RELU}


class TransformerFunctions(OpFunctions):
    """A vendor's ops may replace `rms_norm`, `pre_rms_norm`, `rotate` and `attend`."""

    OP: ClassVar[str] = "transformer_inference"
    TYPED: ClassVar[frozenset[str]] = frozenset(
        ("allocate_workspace", "dequantize", "linear_layer", "mlp_gemm", "repeat_kv_cache", "rms_qkv_gemm",
         "softmax_context")
    )  # fmt: skip

    def __init__(self) -> None:
        self._caches: defaultdict[int, KVCache] = defaultdict(KVCache)

    rotate = staticmethod(attention.rotate)
    attend = staticmethod(attention.attend)

    # ------------------------------------------------------------------------- norms and products

    def rms_norm(self, vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Return the RMS norm over the last dimension."""
        return rms_normed(vals, gamma, epsilon)

    def pre_rms_norm(
        self, vals: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the RMS norm of vals + residual, and the sum."""
        total = vals + residual
        return self.rms_norm(total, gamma, epsilon), total

    def rms_qkv_gemm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        q_scale: torch.Tensor,
        gamma: torch.Tensor,
        epsilon: float,
        q_int8: bool,
        transposed: bool,
    ) -> list[torch.Tensor]:
        """Return norm @ weight, and the norm. The weight is (in, out), or (out, in) if transposed."""
        _refuse_int8(q_int8)
        norm = self.rms_norm(x, gamma, epsilon)
        return [_product(norm, weight, transposed), norm]

    def linear_layer(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        add_bias: bool,
        do_flash_attn: bool,
        heads: int,
        transposed: bool,
        rope_theta: float,
    ) -> torch.Tensor:
        """Return x @ weight, plus the bias if add_bias."""
        return _product(x, weight, transposed, bias if add_bias else None)

    def mlp_gemm(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        input_bias: torch.Tensor | None,
        weight_interm: torch.Tensor,
        weight_out: torch.Tensor,
        bias: torch.Tensor | None,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        epsilon: float,
        pre_layer_norm: bool,
        mlp_after_attn: bool,
        interm_scale: torch.Tensor,
        out_scale: torch.Tensor,
        q_int8: bool,
        kind: int,
        transposed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return layer norm, matmul, bias, activation, matmul of x; and the norm."""
        _refuse_int8(q_int8)
        start = x.float()
        if mlp_after_attn:
            start = start + residual if input_bias is None else start + residual + input_bias
        norm = layer_normed(start, gamma, beta, epsilon).to(x.dtype)
        hidden = activated(_product(norm, weight_interm, transposed, bias), _ACTIVATIONS[kind])
        return _product(hidden, weight_out, transposed), norm

    # ---------------------------------------------------------------------------------- attention

    def softmax_context(
        self,
        query_key_value: torch.Tensor,
        attn_mask: torch.Tensor,
        rotary_dim: int,
        rotate_half: bool,
        rotate_every_two: bool,
        heads: int,
        num_kv: int,
        norm_factor: float,
        triangular_masking: bool,
        local_attention: bool,
        window_size: int,
        no_masking: bool,
        layer_id: int,
        num_layers: int,
        alibi: torch.Tensor,
        rope_theta: float,
        is_prompt: bool | None = None,
        token_idx: Any = None,
        position_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return attention of new tokens to their sequence, and all keys and values, (batch, heads, tokens, width).

        query_key_value: (batch, tokens, (heads + 2 * key-value heads) * width). A prompt starts a new sequence.
        """
        batch, tokens = query_key_value.shape[:2]
        groups, cache = num_kv if num_kv > 0 else heads, self._caches[layer_id]
        if is_prompt or tokens > 1:
            cache.clear()
        rows = query_key_value.view(batch, tokens, heads + 2 * groups, -1)
        width = rotary_dim if rotate_half or rotate_every_two else 0
        at = position_ids if position_ids is not None else cache.positions(rows)
        turned = self._turned(rows[:, :, :-groups], at, width, rope_theta, not rotate_half)
        query, (keys, values) = turned[:, :, :heads], cache.append(turned[:, :, heads:], rows[:, :, -groups:])
        window = window_size * local_attention
        hidden = attention.blocked(attn_mask, query, keys, causal=triangular_masking, window=window)
        bias = alibi.view(batch, heads, -1, alibi.shape[-1]) if alibi.dim() > 1 else None
        found = self.attend(query, keys, values, norm_factor**2, hidden, bias)
        return found.reshape(batch, tokens, -1), keys.transpose(1, 2), values.transpose(1, 2)

    def _turned(
        self, x: torch.Tensor, positions: torch.Tensor, width: int, theta: float, interleaved: bool
    ) -> torch.Tensor:
        if width <= 0:
            return x
        positions = positions.reshape(-1, x.shape[1])
        cos, sin = attention.angles(positions, width, float(theta), interleaved=interleaved)
        turned = self.rotate(x[..., :width], cos, sin, interleaved)
        return turned if x.shape[-1] == width else torch.cat((turned, x[..., width:]), dim=-1)

    def dequantize(self, weight: torch.Tensor, scale: torch.Tensor, groups: int) -> torch.Tensor:
        """Return an int8 weight times the scale of each group, in float16 whatever the name's type, as upstream's."""
        return (weight.reshape(groups, -1) * scale.reshape(groups, 1)).to(torch.float16).view(weight.shape)

    # ---------------------------------------------------------------------------------- workspace

    def allocate_workspace(self, *sizes: Any) -> bool:
        """Remove all sequences. Memory is allocated when tokens are added."""
        self._caches.clear()
        return True

    def release_workspace(self) -> bool:
        """Remove all sequences and free their memory."""
        return self.allocate_workspace()

    def retake_workspace(self) -> bool:
        """Do nothing: memory is allocated when tokens are added."""
        return True

    def reset_cache(self) -> None:
        """Start new sequences."""
        for cache in self._caches.values():
            cache.clear()

    def repeat_kv_cache(self, source_batch_size: int, repeats: int) -> list[torch.Tensor]:
        """Repeat each sequence of the prompt; returns keys and values of every layer in turn."""
        pairs = (self._caches[layer].repeat(source_batch_size, repeats) for layer in sorted(self._caches))
        return [rows.transpose(1, 2) for pair in pairs for rows in pair]


def _product(
    x: torch.Tensor, weight: torch.Tensor, transposed: bool, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return functional.linear(x, weight if transposed else weight.t(), bias)


def _refuse_int8(q_int8: bool) -> None:
    if q_int8:
        raise FunctionNotImplemented(
            what="transformer_inference cannot use int8 weights on this accelerator",
            found="a model that init_inference() has to run in int8",
            expected="float32, float16 or bfloat16",
            do="pass one of these to init_inference(dtype=…)",
        )
