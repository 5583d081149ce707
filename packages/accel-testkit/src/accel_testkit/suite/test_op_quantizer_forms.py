# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer's forms: exact parameters, groups of every size, layouts of results, and numbers that are alike."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
#: Group sizes around those that kernels and vendors' ops take; the last is beyond npu_dynamic_quant's.
_WIDTHS = (2, 6, 8, 250, 1024, 11266)
_FUNCTIONS = ("quantize", "swizzle_quant", "loco_swizzle_quant")


def _expect_all(holds: dict[str, Any], what: str) -> None:
    Holds(holds).expect(f"{what} of the quantizer", "compare it with `accel_ops.quantizer`")


def _rows(groups: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(89)
    rows = torch.randn(groups, width, generator=generator) + torch.arange(groups).view(-1, 1)
    return (rows * torch.logspace(-2, 1, groups).view(-1, 1)).to(dtype)


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
    """In groups of every size and type: half a step beside the number, or beside the end that is cut off."""
    holds: dict[str, Any] = {}
    for dtype in {torch.float32, *accelerator.supported_dtypes()}:
        for width in _WIDTHS:
            rows = _rows(3, width, dtype)
            exact, case = rows.double(), f"{dtype} in groups of {width}"
            data, parameters = _call(op, name, rows.to(device), bits, kind)
            back = op.dequantize_fp32(data.view(3, -1), parameters, 3, bits, getattr(op, kind)).cpu().double()
            step = parameters.cpu().double()[:, :1]
            middle = (exact.amax(1, keepdim=True) + exact.amin(1, keepdim=True)) / 2 * (kind == "Asymmetric")
            nearest = ((exact - middle) / step).clamp(-(1 << bits - 1), (1 << bits - 1) - 1) * step + middle
            holds[f"{case}: within half a step"] = float(((back - nearest).abs() / step).max()) <= 0.51
            size = rows.numel() * bits // 8
            layout = (data.dtype, data.numel(), parameters.dtype, tuple(parameters.shape))
            columns = 2 if kind == "Asymmetric" else 1
            holds[f"{case}: bytes and parameters"] = layout == (torch.int8, size, torch.float32, (3, columns))
            holds[f"{case}: contiguous"] = data.is_contiguous() and parameters.is_contiguous()
            holds[f"{case}: flat"] = name == "quantize" or data.dim() == 1
    _expect_all(holds, name)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_groups_of_one_number_are_exact(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Zeros come back as zeros, the asymmetric kind keeps a number that all of a group are; empty groups stay so."""
    rows = torch.tensor([0.0, 3.5, -2.0, 0.0]).view(4, 1).repeat(1, 8)
    data, parameters = op.quantize(rows.to(device), 4, bits, getattr(op, kind))
    back = op.dequantize_fp32(data, parameters, 4, bits, getattr(op, kind)).cpu()
    none, shape = op.quantize(rows[:, :0].to(device), 4, bits, getattr(op, kind)), (4, 0)
    apart = (back - rows).abs().amax(1) / torch.tensor([1.0, 3.5, 2.0, 1.0])
    exact = kind == "Asymmetric"
    holds = {
        "zeros of zeros": not back[0].any() and not back[3].any(),
        "a step at most of equal numbers": float(apart.max()) <= (1e-6 if exact else 1.01 / (1 << bits - 1)),
        "a group without numbers": tuple(none[0].shape) == shape and none[1].shape[0] == 4,
        "finite parameters": parameters.isfinite().all() and none[1].isfinite().all(),
    }
    _expect_all(holds, "quantize()")


@pytest.mark.parametrize("bits", [8, 4])
def test_results_are_flat_whatever_the_shape(op: Any, device: torch.device, bits: int) -> None:
    """`dequantize_int*_to_half_experimental` gives one shape for bytes in rows and in a row."""
    data = torch.arange(6 * 4 * bits // 8, dtype=torch.int32).to(torch.int8).to(device)
    buffers = torch.ones(6, device=device).half(), torch.zeros(6, device=device).half()
    function = getattr(op, f"dequantize_int{bits}_to_half_experimental")
    shapes = {tuple(function(given, *buffers, 6, 4).shape) for given in (data, data.view(6, -1), data[None])}
    _expect_all({"one shape": len(shapes) == 1}, f"dequantize_int{bits}_to_half_experimental(), {shapes},")


def test_refusals_name_the_function(op: Any, device: torch.device) -> None:
    """An error says which function cannot use which size or type, in this order."""
    rows = torch.ones(4, 16, device=device)
    data, steps = op.quantize(rows, 4, 8, op.Symmetric)
    half = torch.ones(4, device=device).half()
    calls: dict[str, Any] = {
        r"\bquantize cannot .*num_bits = 3": lambda: op.quantize(rows, 4, 3, 0),
        r"\bquantize cannot .*groups = 5": lambda: op.quantize(rows, 5, 8, 0),
        r"\bdequantize\S* cannot .*parameters\b.* 3 ": lambda: op.dequantize(data, steps[:3], 4, 8, 0),
        r"\bswizzle_quant cannot .*pipeline_size \* nodes \* devices_per_node = 1 \* 3 \* 1": lambda: (
            op.swizzle_quant(rows, 4, 8, 0, 1, 3, 1)
        ),
        r"\bquantized_reduction cannot .*in_groups\b": lambda: op.quantized_reduction(data, steps, 3, 1, 8, 0, 2),
        r"\bloco_swizzle_quant cannot .*error_feedback has 16 ": lambda: op.loco_swizzle_quant(
            rows, rows[0].clone(), 0.5, 4, 8, 0, 1, 1, 1
        ),
        r"\bdequantize_int8?\S* cannot .*data_in\b.* 64 ": lambda: op.dequantize_int8_to_half_experimental(
            data, half, half, 4, 8
        ),
        r"\bds_quantize cannot .*vals of torch.int32": lambda: op.ds_quantize_fp32(rows.int(), 4, 8),
    }  # fmt: skip
    wrong = [f"{pattern}: {text}" for pattern, call in calls.items() if (text := _unlike(pattern, call))]
    expect(
        not wrong,
        "refusals of the quantizer do not say what they refuse",
        found="; ".join(wrong),
        expected="the function, then the argument and what it is",
        do="pass the name of the function to `accel_ops.quantizer`",
    )


def _unlike(pattern: str, call: Any) -> str:
    """Return what is said in place of the pattern; empty if it is said."""
    try:
        call()
    except AccelError as error:
        said = f"{error.what} {error.found} "
        return "" if re.search(pattern, said) else said
    except ValueError:
        return ""  # an op of the vendor's own, with words of its own
    return "no error"
