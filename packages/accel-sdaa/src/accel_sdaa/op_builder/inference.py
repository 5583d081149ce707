# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference functions: SwiGLU with torch_sdaa's op, others in plain torch."""

from __future__ import annotations

import dataclasses
import importlib
from contextlib import suppress

import torch

from accel_ops import inference
from accel_ops.inference import INFERENCE_CORE
from accel_ops.op import runtime_ops

_PLAIN = inference.CoreFunctions()
#: The row length must be a multiple of this, according to public code that uses the op.
_ROW = 16


def gated_activation(output: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None, kind: int) -> None:
    """output = activation(gate) * value, where the channels of x are interleaved: gate, value, gate, …"""
    channels = x.shape[-1]
    if kind != inference.SIGLU or channels % _ROW:
        _PLAIN.gated_activation(output, x, bias, kind)
        return
    # The input layout is (1, tokens, 1, channels), the output layout (tokens, 1, channels / 2).
    both = inference.gates_then_values(x, bias).view(1, -1, 1, channels)
    output.copy_(torch.ops.sdaa.swiglu(both, both.shape[1], 1, channels // 2).view_as(output))


_ROUTE = runtime_ops(INFERENCE_CORE, {"gated_activation": ("sdaa.swiglu", gated_activation)})


def _lack() -> str:
    with suppress(ImportError):
        importlib.import_module("torch_sdaa.nn")  # registers the op
    return _ROUTE.lack()


InferenceCoreBuilder = INFERENCE_CORE.builder(__name__, dataclasses.replace(_ROUTE, lack=_lack))
