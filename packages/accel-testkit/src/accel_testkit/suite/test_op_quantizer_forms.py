# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer's forms: exact parameters, groups of every size and number, layouts, and numbers that are alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_DO = "compare it with `accel_ops.quantizer`"
_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
#: Groups and their sizes around those that kernels and vendors' ops take; 11266 is beyond npu_dynamic_quant's.
_SHAPES = ((5, 2), (5, 6), (5, 8), (5, 250), (5, 1024), (5, 11266), (2500, 16))
_FUNCTIONS = ("quantize", "swizzle_quant", "loco_swizzle_quant")


def _rows(groups: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(89)
    rows = torch.randn(groups, width, generator=generator) + (torch.arange(groups) % 7).view(-1, 1)
    rows *= torch.logspace(-2, 1, groups).view(-1, 1)
    # Ranges that are a number which code may take for another.
    rows[0], rows[1] = torch.linspace(-0.5, 0.5, width), torch.linspace(0, 1, width)
    return rows.to(dtype)


def _call(op: Any, name: str, rows: torch.Tensor, bits: int, kind: str) -> Any:
    groups, chosen = rows.shape[0], getattr(op, kind)
    if name == "quantize":
        return op.quantize(rows, groups, bits, chosen)
    if name == "swizzle_quant":
        return op.swizzle_quant(rows, groups, bits, chosen, 1, 1, 1)
    error = torch.zeros_like(rows, dtype=torch.float32)
    return op.loco_swizzle_quant(rows, error, 0.5, groups, bits, chosen, 1, 1, 1)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_numbers_come_back_within_a_step(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, name: str, kind: str, bits: int
) -> None:
    """In groups of every size, number and type: half a step beside the number, or beside the end that is cut off."""
    holds, chosen = Holds(), getattr(op, kind)
    for dtype in {torch.float32, *accelerator.supported_dtypes()}:
        # In 8 bits, a row may have any length.
        for groups, width in (*_SHAPES, *([(5, 7)] if bits == 8 else [])):
            rows = _rows(groups, width, dtype)
            exact, case = rows.double(), f"{dtype} in {groups} groups of {width}"
            data, parameters = _call(op, name, rows.to(device), bits, kind)
            back = op.dequantize_fp32(data.view(groups, -1), parameters, groups, bits, chosen)
            step = parameters.cpu().double()[:, :1]
            middle = (exact.amax(1, keepdim=True) + exact.amin(1, keepdim=True)) / 2 * (kind == "Asymmetric")
            nearest = ((exact - middle) / step).clamp(-(1 << bits - 1), (1 << bits - 1) - 1) * step + middle
            holds.near(f"{case}: within half a step", back, nearest, 0.51 * step)
            layout = (data.dtype, data.numel(), parameters.dtype, tuple(parameters.shape))
            wanted = (
                torch.int8,
                rows.numel() * bits // 8,
                torch.float32,
                (groups, 1 + (kind == "Asymmetric")),
            )
            holds.equal(f"{case}: bytes and parameters", layout, wanted)
            holds[f"{case}: contiguous"] = data.is_contiguous() and parameters.is_contiguous()
            holds[f"{case}: flat"] = name == "quantize" or data.dim() == 1
    holds.expect(f"{name} of the quantizer", _DO)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_groups_of_one_number_are_exact(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Zeros come back as zeros, the asymmetric kind keeps a number that all of a group are; empty groups stay so."""
    rows = torch.tensor([0.0, 3.5, -2.0, 0.0]).view(4, 1).repeat(1, 8)
    data, parameters = op.quantize(rows.to(device), 4, bits, getattr(op, kind))
    back = op.dequantize_fp32(data, parameters, 4, bits, getattr(op, kind)).cpu()
    none, shape = op.quantize(rows[:, :0].to(device), 4, bits, getattr(op, kind)), (4, 0)
    apart = (back - rows).abs().amax(1) / torch.tensor([1.0, 3.5, 2.0, 1.0])
    most = 1e-6 if kind == "Asymmetric" else 1.01 / (1 << bits - 1)
    holds = Holds({"zeros of zeros": not back[0].any() and not back[3].any()})
    holds["a step at most of equal numbers"] = float(apart.max()) <= most
    holds["a group without numbers"] = tuple(none[0].shape) == shape and none[1].shape[0] == 4
    holds["finite parameters"] = parameters.isfinite().all() and none[1].isfinite().all()
    holds.expect("quantize()", _DO)
