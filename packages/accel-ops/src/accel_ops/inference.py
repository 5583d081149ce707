# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions in plain torch, and their builders.

A vendor without fused ops lists the builders in its op table unchanged. One with some::

    InferenceBuilder = INFERENCE.builder(__name__, runtime_ops(INFERENCE, {"rms_norm": ("npu.npu_rms_norm", rms_norm)}))

Tensors of `inference_core_ops`, which DeepSpeed's second inference engine calls, are (tokens, channels) of one float
type. Its functions write into their output tensors and compute in float32.

`transformer_inference`, which DeepSpeed calls in models with injected kernels, has only functions for which DeepSpeed
has no torch code, or code that is wrong for some models: its attention assumes as many key-value heads as heads and
does not rotate interleaved channels, and its MLP supports only GELU. For the others DeepSpeed uses its own torch code.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any, ClassVar

import torch
from torch.nn import functional

from accel_core.errors import FunctionNotImplemented, InvalidOpArgument
from accel_core.op_builder import OpFunctions
from accel_ops.op import Op

#: Values of deepspeed.inference.v2.inference_utils.ActivationType.
GELU, RELU, SILU, GEGLU, REGLU, SIGLU, IDENTITY = range(7)
_GATES = {GEGLU: GELU, REGLU: RELU, SIGLU: SILU}


def activated(x: torch.Tensor, kind: int) -> torch.Tensor:
    """Apply GELU (with the tanh approximation, as DeepSpeed's kernels do), ReLU, SiLU or the identity."""
    if kind == GELU:
        return functional.gelu(x, approximate="tanh")
    return x.relu() if kind == RELU else functional.silu(x) if kind == SILU else x


def gates_then_values(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return a copy of interleaved channels (gate, value, gate, …) with all gates first.

    bias: added in float32, which the result then has, so that nothing is rounded before the end.
    """
    wide = x if bias is None else x.float() + bias
    return wide.view(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)


def rms_normed(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm over the last dimension, rounded once. Source: Zhang and Sennrich, arXiv:1910.07467."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale * gamma.float()).to(x.dtype)


def pre_rms_normed(
    x: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMS norm of x + residual, and the sum."""
    total = x + residual
    return rms_normed(total, gamma, epsilon), total


def layer_normed(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Layer norm over the last dimension, rounded once."""
    return functional.layer_norm(x.float(), x.shape[-1:], gamma.float(), beta.float(), epsilon).to(x.dtype)


class CoreFunctions(OpFunctions):
    """The functions of `inference_core_ops`, except CUDA kernels with their own format (six-bit weights).

    A vendor's ops may replace `_rms_normed`, `_pre_rms_normed` and `gated_activation`.
    """

    OP: ClassVar[str] = "inference_core_ops"
    _rms_normed = staticmethod(rms_normed)
    _pre_rms_normed = staticmethod(pre_rms_normed)

    def create_handle(self) -> None:
        """Do nothing: torch's matrix product needs no handle."""

    def blas_linear(self, output: torch.Tensor, hidden_states: torch.Tensor, weights: torch.Tensor) -> None:
        """output = hidden_states @ weights.T; weights: (out channels, in channels)."""
        output.copy_(functional.linear(hidden_states, weights).view_as(output))

    def rms_norm(
        self, norm_output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, epsilon: float
    ) -> None:
        """norm_output = RMS norm of norm_input; they may be the same tensor."""
        norm_output.copy_(self._rms_normed(norm_input, gamma, epsilon))

    def rms_pre_norm(
        self,
        norm_output: torch.Tensor,
        residual_output: torch.Tensor,
        norm_input: torch.Tensor,
        residual_input: torch.Tensor,
        gamma: torch.Tensor,
        epsilon: float,
    ) -> None:
        """residual_output = residual_input + norm_input, and its norm. Outputs may be inputs."""
        normed, total = self._pre_rms_normed(norm_input, residual_input, gamma, epsilon)
        residual_output.copy_(total)
        norm_output.copy_(normed)

    def layer_norm(
        self, output: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, epsilon: float
    ) -> None:
        """output = layer norm of x; they may be the same tensor."""
        output.copy_(layer_normed(x, gamma, beta, epsilon))

    def pre_layer_norm(
        self,
        residual_output: torch.Tensor,
        norm_output: torch.Tensor,
        residual_input: torch.Tensor,
        norm_input: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        epsilon: float,
    ) -> None:
        """residual_output = residual_input + norm_input, and its norm. Outputs may be inputs."""
        residual_output.copy_(residual_input + norm_input)
        norm_output.copy_(layer_normed(residual_output, gamma, beta, epsilon))

    def post_layer_norm(
        self,
        output: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        epsilon: float,
    ) -> None:
        """output = layer norm of x + y; output may be x or y."""
        output.copy_(layer_normed(x.float() + y, gamma, beta, epsilon))

    def bias_activation(self, activation: torch.Tensor, bias: torch.Tensor | None, kind: int) -> None:
        """Add the bias and apply the activation `kind`, in place."""
        wide = activation.float() if bias is None else activation + bias.float()
        activation.copy_(activated(wide, kind))

    def gated_activation(
        self, output: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None, kind: int
    ) -> None:
        """output = activation(gate) * value, where the channels of x are interleaved: gate, value, gate, …"""
        wide = x.float() if bias is None else x + bias.float()
        gate, value = wide[..., 0::2], wide[..., 1::2]
        output.copy_(activated(gate, _GATES[kind]) * value)


#: Additive masks hide a key from here on. DeepSpeed's own value is -10000, in bfloat16 -9984.
_HIDES = -9000.0


def split_mask(mask: torch.Tensor, count: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return which of `count` keys a model's mask hides, and what it adds to the scores; (batch or 1, heads or 1, …).

    mask: additive, or of bool or integers, where False and 0 hide a key; (batch, keys), (batch, queries, keys) or four
    dimensions; 1-D for no mask, on any device. Keys behind its end are hidden. A single value holds for all keys.
    """
    if mask.dim() < 2:
        return None, None
    if mask.dim() < 4:
        mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    mask = mask.expand(*mask.shape[:-1], count) if mask.shape[-1] == 1 else mask[..., :count]
    adds = mask.is_floating_point()
    hidden = mask <= _HIDES if adds else mask == 0
    bias = mask.masked_fill(hidden, 0.0) if adds else None
    missing = count - mask.shape[-1]
    if missing:
        hidden = functional.pad(hidden, (0, missing), value=True)
        bias = None if bias is None else functional.pad(bias, (0, missing))
    return hidden, bias


def blocked(
    hidden: torch.Tensor | None, query: torch.Tensor, keys: torch.Tensor, *, causal: bool, window: int
) -> torch.Tensor | None:
    """Return a bool mask of hidden keys, (batch or 1, heads or 1, queries or 1, keys); None if none is hidden.

    hidden: what the model's mask hides. It is ignored for queries to which it leaves no key.
    query, keys: (batch, tokens, …); only the number of tokens is used. The queries are the last tokens.
    causal: mask the keys after each query.
    window: number of keys that a query attends to at most, including itself; 0 for all.
    """
    queries, count = query.shape[1], keys.shape[1]
    outside = None
    if (causal and queries > 1) or window:
        at = torch.arange(count, device=query.device)
        last = at[count - queries :, None]
        outside = at > last if causal else torch.zeros_like(at > last)
        if window:
            outside = outside | (at <= last - window)
    if hidden is None:
        return None if outside is None else outside[None, None]
    both = hidden if outside is None else hidden | outside
    nothing_left = both.all(-1, keepdim=True)
    return both & ~nothing_left if outside is None else torch.where(nothing_left, outside, both)


@cache
def _frequencies(width: int, theta: float, device: torch.device) -> torch.Tensor:
    return theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width).to(device)


def angles(
    positions: torch.Tensor, width: int, theta: float, *, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines, float32 (batch or 1, tokens, 1, width), for positions (batch or 1, tokens).

    interleaved: rotate channel 2i with 2i + 1; otherwise i with i + width / 2. Source: Su et al., arXiv:2104.09864.
    """
    half = positions[..., None].float() * _frequencies(width, theta, positions.device)
    full = half.repeat_interleave(2, dim=-1) if interleaved else torch.cat((half, half), dim=-1)
    return full.cos()[:, :, None], full.sin()[:, :, None]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Rotate pairs of channels of x, (batch, tokens, heads, width), by the angles."""
    if interleaved:
        turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    else:
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    hidden: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of (batch, queries, heads, width) to (batch, keys, groups, width), groups dividing heads.

    hidden: the mask that `blocked` returns. bias: added to the scores, (batch, heads or 1, queries or 1, keys).
    """
    if bias is not None:
        bias = bias.to(query)
    if hidden is not None:
        bias = (query.new_zeros(()) if bias is None else bias).masked_fill(hidden, -torch.inf)
    found = functional.scaled_dot_product_attention(
        query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), bias, scale=scale,
        enable_gqa=query.shape[2] != keys.shape[2],
    )  # fmt: skip
    return found.transpose(1, 2)


class KVCache:
    """Keys and values of past tokens. The capacity doubles when needed; `append` returns views."""

    def __init__(self) -> None:
        self.length = 0
        self._rows: torch.Tensor | None = None

    def clear(self) -> None:
        """Remove all tokens; the memory is kept for the next prompt."""
        self.length = 0

    def positions(self, new: torch.Tensor) -> torch.Tensor:
        """Return the positions of new tokens, (batch, tokens, …), in their sequence, on their device."""
        return torch.arange(self.length, self.length + new.shape[1], device=new.device)

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values, (batch, tokens, heads, width); returns all of them in the same layout."""
        end = self.length + keys.shape[1]
        rows = self._with_room(keys, end)
        rows[0, :, self.length : end] = keys
        rows[1, :, self.length : end] = values
        self.length = end
        return rows[0, :, :end], rows[1, :, :end]

    def repeat(self, batch: int, times: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Repeat each of the first `batch` sequences `times` times; returns all keys and values."""
        if self._rows is None or not self.length:
            raise RuntimeError("a key-value cache can be repeated after a prompt only; found an empty one")
        self._rows = self._rows[:, :batch].repeat_interleave(times, dim=1)
        return self._rows[0, :, : self.length], self._rows[1, :, : self.length]

    def _with_room(self, new: torch.Tensor, end: int) -> torch.Tensor:
        old = self._rows
        if old is not None and old.dtype == new.dtype and old[0, :, 0].shape == new[:, 0].shape:
            if old.shape[2] >= end:
                return old
            capacity = 2 * end
        elif old is not None and self.length:
            before, now = (f"{tuple(rows.shape)} {rows.dtype}" for rows in (old[0, :, 0], new[:, 0]))
            raise InvalidOpArgument(
                f"these keys and values cannot follow in the key-value cache: {now} after {self.length} "
                f"tokens of {before}; expected keys and values of the prompt's (batch, heads, width) and type",
                do="begin the other sequences with a prompt (is_prompt=True), or call reset_cache()",
            )
        else:
            old, capacity = None, end
        self._rows = new.new_empty((2, new.shape[0], capacity, *new.shape[2:]))
        if old is not None:
            self._rows[:, :, : self.length] = old[:, :, : self.length]
        return self._rows


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

    rotate = staticmethod(rotate)
    attend = staticmethod(attend)

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
        hidden, bias = split_mask(attn_mask, keys.shape[1])
        hidden = blocked(hidden, query, keys, causal=triangular_masking, window=window)
        if alibi.dim() > 1:
            slopes = alibi.view(batch, heads, -1, alibi.shape[-1])
            bias = slopes if bias is None else slopes.float() + bias
        found = self.attend(query, keys, values, norm_factor**2, hidden, bias)
        return found.reshape(batch, tokens, -1), keys.transpose(1, 2), values.transpose(1, 2)

    def _turned(
        self, x: torch.Tensor, positions: torch.Tensor, width: int, theta: float, interleaved: bool
    ) -> torch.Tensor:
        if width <= 0:
            return x
        positions = positions.reshape(-1, x.shape[1])
        cos, sin = angles(positions, width, float(theta), interleaved=interleaved)
        turned = self.rotate(x[..., :width], cos, sin, interleaved)
        return turned if x.shape[-1] == width else torch.cat((turned, x[..., width:]), dim=-1)

    def apply_rotary_pos_emb(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        rotary_dim: int,
        offset: int,
        num_heads: int,
        rotate_half: bool,
        rope_theta: float,
    ) -> list[torch.Tensor]:
        """Return query and key with the first `rotary_dim` channels of each head rotated.

        query, key: (batch, heads, tokens, width), or (batch, tokens, heads * width) with `num_heads` heads of query.
        offset: the position of the first token. As in DeepSpeed's kernel, channel i turns with i + rotary_dim / 2
        whatever `rotate_half` says. Raises InvalidOpArgument if a head does not have an even number of these channels.
        """
        width, rest = divmod(query.shape[-1], 1 if query.dim() == 4 else max(num_heads, 1))
        if num_heads < 1 or rest or key.shape[-1] % width or rotary_dim % 2 or not 0 < rotary_dim <= width:
            raise InvalidOpArgument(
                f"apply_rotary_pos_emb cannot rotate these channels: rotary_dim = {rotary_dim}, num_heads = "
                f"{num_heads}, query {tuple(query.shape)}, key {tuple(key.shape)}; expected heads of the same "
                "width, with an even rotary_dim of at most that width",
                do="pass the model's own rotary_dim and num_heads",
            )
        turned = []
        for x in (query, key):
            rows = x.transpose(1, 2) if x.dim() == 4 else x.unflatten(-1, (-1, width))
            at = offset + torch.arange(rows.shape[1], device=x.device)
            rows = self._turned(rows, at, rotary_dim, rope_theta, interleaved=False)
            turned.append((rows.transpose(1, 2) if x.dim() == 4 else rows.flatten(-2)).contiguous())
        return turned

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
        for layer in self._caches.values():
            layer.clear()

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
            "transformer_inference cannot use int8 weights on this accelerator: a model that "
            "init_inference() has to run in int8",
            do="pass float32, float16 or bfloat16 to init_inference(dtype=…)",
        )


INFERENCE = Op(
    "transformer_inference", "InferenceBuilder", "The kernels that deepspeed.init_inference injects into models.",
    TransformerFunctions,
)  # fmt: skip
INFERENCE_CORE = Op(
    "inference_core_ops", "InferenceCoreBuilder", "The kernels of deepspeed.inference.v2.", CoreFunctions
)
InferenceBuilder = INFERENCE.builder(__name__)
InferenceCoreBuilder = INFERENCE_CORE.builder(__name__)
