# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's functions of the two inference ops that DeepSpeed has no torch code for; their definitions in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor

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


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension. Source: Zhang and Sennrich, arXiv:1910.07467."""
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * gamma


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Layer norm over the last dimension. Source: Ba et al., arXiv:1607.06450."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + eps).sqrt() * gamma + beta


def activation(x: Tensor, kind: str) -> Tensor:
    """GELU in the approximation with tanh, which DeepSpeed's kernels use; ReLU, SiLU, identity."""
    if kind == "gelu":
        return functional.gelu(x, approximate="tanh")
    return x.clamp(min=0) if kind == "relu" else x * torch.sigmoid(x) if kind == "silu" else x


@dataclass(frozen=True)
class Attention:
    """What `softmax_context` gets about a model.

    rotary: channels that are rotated, interleaved: neighbours form a pair, otherwise channels of the two halves.
    window: number of last keys that a query sees, 0 for all. padding: leading keys of the first sequence to hide.
    """

    heads: int = 4
    groups: int = 4
    width: int = 8
    rotary: int = 0
    interleaved: bool = False
    theta: float = 10000.0
    factor: float = 0.6
    causal: bool = True
    window: int = 0
    padding: int = 0
    alibi: bool = False


@dataclass
class Sequences:
    """The keys and values of past tokens of one layer, (batch, heads, tokens, width)."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def attend(self, rows: Tensor, model: Attention, bias: Tensor | None) -> list[Tensor]:
        """Return attention of new tokens to all, and all keys and values.

        rows: (batch, tokens, (heads + 2 * groups) * width). bias: (batch, heads, 1, keys), added to the scores.
        """
        batch, tokens = rows.shape[:2]
        parts = rows.view(batch, tokens, -1, model.width).transpose(1, 2)
        start = sum(part.shape[2] for part in self.keys)
        query = rotated(parts[:, : model.heads], start, model)
        self.keys.append(rotated(parts[:, model.heads : -model.groups], start, model))
        self.values.append(parts[:, -model.groups :])
        keys, values = torch.cat(self.keys, 2), torch.cat(self.values, 2)
        times = model.heads // model.groups
        scores = query @ keys.repeat_interleave(times, 1).transpose(2, 3) * model.factor**2
        scores = scores if bias is None else scores + bias
        hidden = _hidden(model, start, tokens, batch)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        found = weights @ values.repeat_interleave(times, 1)
        return [found.transpose(1, 2).reshape(batch, tokens, -1), keys, values]

    def repeat(self, times: int) -> list[Tensor]:
        """Repeat each sequence; return all keys and values."""
        self.keys = [part.repeat_interleave(times, 0) for part in self.keys]
        self.values = [part.repeat_interleave(times, 0) for part in self.values]
        return [torch.cat(self.keys, 2), torch.cat(self.values, 2)]


def _hidden(model: Attention, start: int, tokens: int, batch: int) -> Tensor:
    query = torch.arange(start, start + tokens)[:, None]
    key = torch.arange(start + tokens)[None]
    hidden = (key > query) & model.causal
    if model.window:
        hidden = hidden | (key <= query - model.window)
    hidden = hidden.expand(batch, 1, tokens, start + tokens).clone()
    hidden[0] |= key < model.padding
    return hidden


def rotated(x: Tensor, start: int, model: Attention) -> Tensor:
    """Rotate pairs of channels by their position. Source: Su et al., arXiv:2104.09864."""
    if not model.rotary:
        return x
    x = x.clone()
    half = model.rotary // 2
    for pair in range(half):
        a, b = (2 * pair, 2 * pair + 1) if model.interleaved else (pair, pair + half)
        at = torch.arange(start, start + x.shape[2], dtype=x.dtype)
        angle = at * model.theta ** (-2 * pair / model.rotary)
        one, other = x[..., a].clone(), x[..., b].clone()
        x[..., a] = one * angle.cos() - other * angle.sin()
        x[..., b] = other * angle.cos() + one * angle.sin()
    return x
