# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer's symmetric int8 by torch_npu's npu_dynamic_quant, if a self-check shows that it is right.

The op's step is max|x| / 127, where plain torch's (and DeepSpeed's on CUDA) is max|x| / 128 with the largest number
cut off. The receiver multiplies the integers by the step that comes with them, and need not know which it was.
"""

from __future__ import annotations

from functools import partial

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation
from accel_ops.device import self_checks
from accel_ops.op import LoadedOp, Route, has_op
from accel_ops.quantizers.quantizer import (
    QUANTIZER,
    Order,
    Pair,
    QuantizerFunctions,
    dequantize_groups,
    swizzle,
)

OP = "npu.npu_dynamic_quant"
_DEVICE = "npu"
_DTYPES = (torch.float16, torch.bfloat16)
#: Longest row on Atlas A2. Source: torch_npu 6.0.RC3, npu_dynamic_quant.
_MOST_WIDTH = 11264
#: Widths of the self-check: shorter than a vector register, not a multiple of one, and longer than most groups.
_WIDTHS = (8, 1000, 8192)
#: What a step or an integer may be off: the device's division is exact to a rounding or two.
_PRECISION = 1e-3


def dynamic_quant(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 integers, and the steps as a column."""
    # The default mode is not passed, because older releases do not have the argument.
    integers, steps = torch.ops.npu.npu_dynamic_quant(rows)
    return integers, steps.view(-1, 1)


class DynamicQuantFunctions(QuantizerFunctions):
    """The loaded quantizer. What npu_dynamic_quant does not take is computed in plain torch."""

    @override
    def _quantized(
        self, what: str, values: torch.Tensor, groups: int, bits: int, kind: int, order: Order = (1, 1, 1),
        error: torch.Tensor | None = None, beta: float = 0.0,
    ) -> Pair:  # fmt: skip
        if error is not None or not _takes(values, groups, bits, kind):
            return super()._quantized(what, values, groups, bits, kind, order, error, beta)
        integers, steps = dynamic_quant(values.detach().reshape(groups, -1))
        return [swizzle(integers, *order).view(-1), swizzle(steps, *order)]


def _takes(values: torch.Tensor, groups: int, bits: int, kind: int) -> bool:
    if bits != 8 or int(kind) != QuantizerFunctions.Symmetric:
        return False
    if values.dtype not in _DTYPES or values.device.type != _DEVICE:
        return False
    size = values.numel()
    return groups > 0 and size > 0 and size % groups == 0 and size // groups <= _MOST_WIDTH


def _wrong_rows(dtype: torch.dtype, width: int, device: str) -> str:
    """Quantize rows of one width; return what is wrong with the result."""
    rows = torch.randn(12, width, generator=torch.Generator().manual_seed(width))
    rows = rows.mul_(torch.logspace(-3, 3, 12).view(-1, 1)).to(dtype)
    rows[0] = 0.0
    # At each end of a row and within it, as a device's maximum may skip a NaN that comes first or last.
    bad = [0, width // 2, width - 1, 1, width - 2]
    rows[range(1, len(bad) + 1), bad] = torch.tensor([torch.nan] * 3 + [torch.inf, -torch.inf]).to(dtype)
    integers, steps = (tensor.cpu() for tensor in dynamic_quant(rows.to(device)))
    case = f"npu_dynamic_quant of {str(dtype).removeprefix('torch.')} in rows of {width}"
    if integers.dtype != torch.int8 or steps.dtype != torch.float32 or integers.shape != rows.shape:
        return f"{case} returns {integers.dtype} of shape {tuple(integers.shape)} and {steps.dtype}"
    back = dequantize_groups(integers, steps, asymmetric=False)
    if back[1 : len(bad) + 1].isfinite().all(1).any():
        return f"{case} hides a NaN or an infinity"
    if back[0].any():
        return f"{case} makes zeros {back[0].abs().max():g}"
    return _wrong_numbers(case, *(tensor[len(bad) + 1 :].double() for tensor in (rows, integers, steps)))


def _wrong_numbers(case: str, rows: torch.Tensor, integers: torch.Tensor, steps: torch.Tensor) -> str:
    levels = rows.abs().amax(1, keepdim=True) / steps
    if not ((levels >= 127 * (1 - _PRECISION)) & (levels <= 128 * (1 + _PRECISION))).all():
        return f"{case} has a step of max|x| / {levels[(levels - 127).abs().argmax()].item():.4g}, not 127 or 128"
    apart = float((integers - (rows / steps).clamp(-128, 127)).abs().max())
    if not apart <= 0.5 + _PRECISION:
        return f"{case} does not round to nearest: an integer is {apart:.3g} from its number"
    return ""


def _load() -> LoadedOp:
    checks = [partial(_wrong_rows, dtype, width, _DEVICE) for dtype in _DTYPES for width in _WIDTHS]
    self_checks.require(f"torch.ops.{OP}", _DEVICE, *checks)
    what = f"torch.ops.{OP} for symmetric groups of float16 and bfloat16 in 8 bits; plain torch for others"
    return LoadedOp(DynamicQuantFunctions(), lambda: what)


QuantizerBuilder = QUANTIZER.builder(
    __name__,
    Route(
        (Implementation.VENDOR_OP,),
        lambda: f"torch.ops.{OP} if it works when first loaded, else plain torch",
        _load,
        lambda: "" if has_op(OP) else f"this runtime has no torch.ops.{OP}",
    ),
)
