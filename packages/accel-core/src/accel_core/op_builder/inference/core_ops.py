# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of `inference_core_ops`, which DeepSpeed's second inference engine calls.

Tensors are (tokens, channels) of one float type. Functions write into their output tensors and compute in
float32.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.nn import functional

from accel_core.op_builder.functions import OpFunctions

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


def layer_normed(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Layer norm over the last dimension, rounded once."""
    return functional.layer_norm(x.float(), x.shape[-1:], gamma.float(), beta.float(), epsilon).to(x.dtype)


class CoreFunctions(OpFunctions):
    """The functions of `inference_core_ops`, except CUDA kernels with their own format (six-bit weights)."""

    OP: ClassVar[str] = "inference_core_ops"

    def create_handle(self) -> None:
        """Do nothing: torch's matrix product needs no handle."""

    def blas_linear(self, output: torch.Tensor, hidden_states: torch.Tensor, weights: torch.Tensor) -> None:
        """output = hidden_states @ weights.T; weights: (out channels, in channels)."""
        output.copy_(functional.linear(hidden_states, weights).view_as(output))

    def rms_norm(
        self, norm_output: torch.Tensor, norm_input: torch.Tensor, gamma: torch.Tensor, epsilon: float
    ) -> None:
        """norm_output = RMS norm of norm_input; they may be the same tensor."""
        norm_output.copy_(rms_normed(norm_input, gamma, epsilon))

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
        residual_output.copy_(residual_input + norm_input)
        norm_output.copy_(rms_normed(residual_output, gamma, epsilon))

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
        output.copy_(layer_normed(x + y, gamma, beta, epsilon))

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
