# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op strides: a tensor that is not contiguous gives what its contiguous copy gives, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = pytest.mark.tier("device")

Tensors = list[torch.Tensor]
#: Takes the loaded op and tensors of which each may have strides; returns all that it has computed.
Call = Callable[..., Any]


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(101))


def _loco(op: Any, values: torch.Tensor, error: torch.Tensor) -> Tensors:
    error = error.clone(memory_format=torch.preserve_format)
    return [*op.loco_swizzle_quant(values, error, 0.5, 6, 8, op.Asymmetric, 1, 1, 2), error]


def _rounded(op: Any, values: torch.Tensor) -> Tensors:
    values = values.clone(memory_format=torch.preserve_format)
    return [op.ds_quantize_fp32(values, 6, 4), values]


def _attention(op: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Tensors:
    none = query.new_empty(0)
    out = torch.empty(query.shape, device=query.device, dtype=query.dtype)
    sums = torch.empty(6, 2, 32, device=query.device)
    op.attention(query, keys, values, none, none, out, sums)
    return [out, sums]


def _core(name: str, *rest: Any) -> Call:
    """A function of `inference_core_ops` that writes its first tensor, or two."""

    def call(op: Any, *tensors: torch.Tensor) -> Tensors:
        written = [tensor.clone(memory_format=torch.preserve_format) for tensor in tensors[:2]]
        getattr(op, name)(*written, *tensors[2:], *rest)
        return written

    return call


def _product(op: Any, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    op.blas_linear(out, x, weight)
    return [out]


def _linear(op: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Tensors:
    return [
        op.linear_layer_fp32(x, way, bias, True, False, 4, turned, 1e4)
        for way, turned in ((weight, True), (weight.t(), False))
    ]


def _gemm(op: Any, x: torch.Tensor, weight: torch.Tensor, gamma: torch.Tensor) -> Tensors:
    return [*op.rms_qkv_gemm_fp32(x, weight, x.new_empty(1), gamma, 1e-5, False, True)]


def _mlp(
    op: Any, x: torch.Tensor, residual: torch.Tensor, first: torch.Tensor, second: torch.Tensor
) -> Tensors:
    ones, none = x.new_ones(32), x.new_empty(1)
    numbers = (1e-5, True, True, none, none, False, 1, True)
    return [*op.mlp_gemm_fp32(x, residual, None, first, second, ones[:24], ones, ones, *numbers)]


_DATA = (_numbers(6, 32) * 40).to(torch.int8)
_STEPS = _numbers(6, 2).abs()
_HEADS = [_numbers(2, 3, 32, 2, 8).half() for _ in range(3)]
#: What is called: (class name of the builder, call, tensors on the host).
_CALLS: dict[str, tuple[str, Call, Tensors]] = {
    "quantize": ("QuantizerBuilder", lambda op, x: op.quantize(x, 6, 4, op.Asymmetric), [_numbers(6, 32)]),
    "quantize float16": (
        "QuantizerBuilder",
        lambda op, x: op.quantize(x, 6, 8, op.Symmetric),
        [_numbers(6, 32).half()],
    ),
    "swizzle_quant": (
        "QuantizerBuilder",
        lambda op, x: op.swizzle_quant(x, 6, 8, op.Symmetric, 1, 1, 3),
        [_numbers(6, 32)],
    ),
    "loco_swizzle_quant": ("QuantizerBuilder", _loco, [_numbers(6, 32), _numbers(6, 32)]),
    "dequantize": (
        "QuantizerBuilder",
        lambda op, data, steps: op.dequantize(data, steps, 6, 8, op.Asymmetric),
        [_DATA, _STEPS],
    ),
    "quantized_reduction": (
        "QuantizerBuilder",
        lambda op, data, steps: op.quantized_reduction(data, steps, 6, 3, 8, op.Asymmetric, 2),
        [_DATA, _STEPS],
    ),
    "ds_quantize": ("QuantizerBuilder", _rounded, [_numbers(6, 32)]),
    "packbits": ("PackbitsBuilder", lambda op, x: op.packbits(x, 192, 0), [_numbers(6, 32)]),
    "unpackbits": ("PackbitsBuilder", lambda op, x: op.unpackbits(x, 192, 0), [_DATA.view(torch.uint8)]),
    "blas_linear": ("InferenceCoreBuilder", _product, [_numbers(6, 24), _numbers(6, 32), _numbers(24, 32)]),
    "rms_pre_norm": (
        "InferenceCoreBuilder",
        _core("rms_pre_norm", 1e-5),
        [*(_numbers(6, 32) for _ in range(4)), _numbers(32)],
    ),
    "pre_layer_norm": (
        "InferenceCoreBuilder",
        _core("pre_layer_norm", 1e-5),
        [*(_numbers(6, 32) for _ in range(4)), _numbers(32), _numbers(32)],
    ),
    "linear_layer": ("InferenceBuilder", _linear, [_numbers(2, 3, 32), _numbers(24, 32), _numbers(24)]),
    "rms_qkv_gemm": ("InferenceBuilder", _gemm, [_numbers(2, 3, 32), _numbers(24, 32), _numbers(32)]),
    "mlp_gemm": (
        "InferenceBuilder",
        _mlp,
        [_numbers(2, 3, 32), _numbers(2, 3, 32), _numbers(24, 32), _numbers(32, 24)],
    ),
    "attention": ("EvoformerAttnBuilder", _attention, _HEADS),
}


def _strided(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same numbers in another order of memory, and with gaps between them."""
    turned = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    spread = torch.full(
        (*tensor.shape[:-1], 2 * tensor.shape[-1]), 3, dtype=tensor.dtype, device=tensor.device
    )
    part = spread[..., ::2]
    part.copy_(tensor)
    return {"turned": turned, "with gaps": part}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(call[0])) for name, call in _CALLS.items()]
)
def test_strides_are_read_or_refused(
    accelerator: DeepSpeedAccelerator, device: torch.device, name: str
) -> None:
    """Each tensor in turn lies in another order, or with gaps: the results are those of a contiguous copy."""
    builder, call, given = _CALLS[name]
    op, holds = accelerator.create_op_builder(builder).load(), Holds()
    tensors = [tensor.to(device) for tensor in given]
    wanted = _results(call(op, *tensors))
    for place, tensor in enumerate(tensors):
        for form, strided in _strided(tensor).items():
            arguments = [*tensors[:place], strided, *tensors[place + 1 :]]
            case = f"argument {place} {form}"
            try:
                found = _results(call(op, *arguments))
            except Exception:  # refused
                continue
            holds[case] = len(found) == len(wanted) and all(map(_near, found, wanted))
    holds.expect(
        f"{name} of {builder}", "read strides, or a contiguous copy; do not take data_ptr() of anything"
    )


def _results(found: Any) -> Tensors:
    return [each.detach().cpu() for each in ([found] if isinstance(found, torch.Tensor) else found)]


def _near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    if not found.is_floating_point():
        return torch.equal(found, wanted)
    return torch.allclose(found.float(), wanted.float(), rtol=1e-3, atol=1e-3)
