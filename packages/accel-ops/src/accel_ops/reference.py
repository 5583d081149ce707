# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The definition of each op in a few plain lines, to compare implementations with. Nothing trains with it.

Functions compute in the type of their tensors, float64 where it matters, leave them as they are and return new ones.
Hyperparameters have the names of torch.optim; `step` counts from 1, and Lion and Adagrad do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
Betas = tuple[float, float]


def adam(
    grad: Tensor, param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int, lr: float, betas: Betas, eps: float,
    weight_decay: float = 0.0, decoupled: bool = True, bias_correction: bool = True,
) -> list[Tensor]:  # fmt: skip
    """Return parameter and both moments after a step of AdamW, or of Adam if the decay is not decoupled.

    Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
    """
    if weight_decay and not decoupled:
        grad = grad + weight_decay * param
    exp_avg = betas[0] * exp_avg + (1 - betas[0]) * grad
    exp_avg_sq = betas[1] * exp_avg_sq + (1 - betas[1]) * grad**2
    unbiased, unbiased_sq = exp_avg, exp_avg_sq
    if bias_correction:
        unbiased, unbiased_sq = exp_avg / (1 - betas[0] ** step), exp_avg_sq / (1 - betas[1] ** step)
    kept = param * (1 - lr * weight_decay) if decoupled else param
    return [kept - lr * unbiased / (unbiased_sq.sqrt() + eps), exp_avg, exp_avg_sq]


def lion(
    grad: Tensor, param: Tensor, exp_avg: Tensor, *, lr: float, betas: Betas, weight_decay: float = 0.0,
    at_zero: float = 0.0, step: int = 1,
) -> list[Tensor]:  # fmt: skip
    """Return parameter and momentum after a step of Lion. Source: Chen et al., arXiv:2302.06675.

    at_zero: the direction where gradient and momentum are 0; DeepSpeed's CUDA kernel has -1.
    """
    direction = betas[0] * exp_avg + (1 - betas[0]) * grad
    # torch.sign(NaN) is 0.
    signs = direction.sign().where(direction != 0, at_zero).where(~direction.isnan(), direction)
    exp_avg = betas[1] * exp_avg + (1 - betas[1]) * grad
    return [param * (1 - lr * weight_decay) - lr * signs, exp_avg]


def adagrad(
    grad: Tensor, param: Tensor, total: Tensor, *, lr: float, eps: float, weight_decay: float = 0.0, step: int = 1
) -> list[Tensor]:  # fmt: skip
    """Return parameter and sum of squares after a step of Adagrad. Source: Duchi et al., JMLR 12 (2011)."""
    if weight_decay:
        grad = grad + weight_decay * param
    total = total + grad**2
    return [param - lr * grad / (total.sqrt() + eps), total]


def lamb(
    grad: Tensor, param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int, lr: float, betas: Betas, eps: float,
    weight_decay: float = 0.0, bias_correction: bool = True, scale: float = 1.0, bounds: Betas = (0.01, 10.0),
    eps_inside: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Return parameter, both moments and trust ratio after a step of LAMB. Source: You et al., arXiv:1904.00962.

    As DeepSpeed's: the correction of the bias is part of the rate; the ratio is kept within bounds (least, most); the
    gradient is divided by `scale`; epsilon may be inside of the root.
    """
    grad = grad / scale
    exp_avg = betas[0] * exp_avg + (1 - betas[0]) * grad
    exp_avg_sq = betas[1] * exp_avg_sq + (1 - betas[1]) * grad**2
    below = (exp_avg_sq + eps).sqrt() if eps_inside else exp_avg_sq.sqrt() + eps
    update = exp_avg / below + weight_decay * param
    norms = param.norm(), update.norm()
    ratio = torch.ones((), dtype=param.dtype)
    if norms[0] != 0 and norms[1] != 0:
        ratio = (norms[0] / norms[1]).clamp(*bounds)
    rate = lr * ((1 - betas[1] ** step) ** 0.5 / (1 - betas[0] ** step) if bias_correction else 1.0)
    return [param - rate * ratio * update, exp_avg, exp_avg_sq, ratio]


def step_lists(
    optimizer: Callable[..., list[Tensor]], lists: Sequence[list[Tensor]], **hyperparameters: Any
) -> None:
    """Do a step in place on [gradients, parameters, *states], lists of tensors."""
    for tensors in zip(*lists, strict=True):
        for old, new in zip(tensors[1:], optimizer(*tensors, **hyperparameters), strict=False):
            old.copy_(new)


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """RMS norm over the dimensions of gamma, the last ones. Source: Zhang and Sennrich, arXiv:1910.07467."""
    over = tuple(range(-gamma.dim(), 0))
    return x / (x.pow(2).mean(over, keepdim=True) + eps).sqrt() * gamma


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
    """The facts of a model that DeepSpeed's `softmax_context` gets.

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


def grid(rows: Tensor, bits: int, asymmetric: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return step, lowest and highest number of each row, to the nearest of which `ds_quantize` rounds in place.

    The range of a row and 1e-5, which keeps a row of zeros from a step of 0, has 2 ** bits steps: they begin at its
    lowest number or, if symmetric, are around 0.
    """
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    if asymmetric:
        step = (high - low + 1e-5) / (1 << bits)
        return step, low, low + ((1 << bits) - 1) * step
    step = (2 * torch.maximum(high, -low) + 1e-5) / (1 << bits)
    half = 1 << (bits - 1)
    return step, -half * step, (half - 1) * step


def unpack(data: Tensor, bits: int) -> Tensor:
    """Return the signed integers in bytes, flat, int32. Of two in a byte, the first is in the low bits."""
    flat = data.cpu().view(-1).to(torch.int32)
    if bits == 8:
        return flat
    low = flat & 15
    return torch.stack([low - 16 * (low > 7), flat >> 4], 1).view(-1)


def float_numbers(bits: int, mantissa: int) -> Tensor:
    """Return the number of each code of a float format, float64: IEEE 754's, but without infinities and NaN."""
    codes, ones = torch.arange(1 << (bits - 1)), (1 << mantissa) - 1
    exponent, bias = codes >> mantissa, (1 << (bits - mantissa - 2)) - 1
    whole = (codes & ones) + (exponent > 0) * (1 << mantissa)
    numbers = whole * 2.0 ** (exponent.clamp(min=1) - bias - mantissa).double()
    return torch.cat([numbers, -numbers])
