# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: norms, rotation, attention, SwiGLU with torch_npu's ops, others in plain torch."""

from __future__ import annotations

import torch

from accel_ops import inference
from accel_ops.inference import INFERENCE, INFERENCE_CORE
from accel_ops.op import runtime_ops

_PLAIN = inference.CoreFunctions()


def rms_norm(vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the RMS norm over the last dimension."""
    normed: torch.Tensor = torch.ops.npu.npu_rms_norm(vals, gamma, epsilon)[0]
    return normed


def pre_rms_norm(
    vals: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMS norm of vals + residual, and the sum."""
    normed, _, total = torch.ops.npu.npu_add_rms_norm(vals, residual, gamma, epsilon)
    return normed, total


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Rotate pairs of channels of x, (batch, tokens, heads, width), by the angles."""
    # The default mode is not passed, because older releases do not have the argument.
    mode = ("interleave",) if interleaved else ()
    turned: torch.Tensor = torch.ops.npu.npu_rotary_mul(x, cos.to(x.dtype), sin.to(x.dtype), *mode)
    return turned


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    hidden: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of (batch, queries, heads, width) to (batch, keys, groups, width), groups dividing heads."""
    if bias is not None and _adds(bias):
        # The op does not accept the shape of DeepSpeed's bias; torch does.
        return inference.attend(query, keys, values, scale, hidden, bias)
    found: torch.Tensor = torch.ops.npu.npu_fusion_attention(
        query.flatten(2), keys.flatten(2), values.flatten(2), query.shape[2], "BSH",
        atten_mask=hidden, scale=scale,
    )[0]  # fmt: skip
    return found.view(query.shape)


def _adds(bias: torch.Tensor) -> bool:
    """Return False for the bias of a mask of zeros and -10000. A graph cannot be captured while the host looks."""
    import torch_npu

    return bool(torch_npu.npu.is_current_stream_capturing() or bias.any())


def gated_activation(output: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None, kind: int) -> None:
    """output = activation(gate) * value, where the channels of x are interleaved: gate, value, gate, …"""
    if kind != inference.SIGLU:
        _PLAIN.gated_activation(output, x, bias, kind)
        return
    output.copy_(torch.ops.npu.npu_swiglu(inference.gates_then_values(x, bias), -1))


InferenceBuilder = INFERENCE.builder(
    __name__,
    runtime_ops(
        INFERENCE,
        {
            "attend": ("npu.npu_fusion_attention", attend),
            "pre_rms_norm": ("npu.npu_add_rms_norm", pre_rms_norm),
            "rms_norm": ("npu.npu_rms_norm", rms_norm),
            "rotate": ("npu.npu_rotary_mul", rotate),
        },
    ),
)
InferenceCoreBuilder = INFERENCE_CORE.builder(
    __name__,
    runtime_ops(
        INFERENCE_CORE,
        {
            "gated_activation": ("npu.npu_swiglu", gated_activation),
            "_pre_rms_normed": ("npu.npu_add_rms_norm", pre_rms_norm),
            "_rms_normed": ("npu.npu_rms_norm", rms_norm),
        },
    ),
)
