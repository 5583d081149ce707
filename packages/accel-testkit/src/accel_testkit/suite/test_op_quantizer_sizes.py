# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer: sizes that do not fit are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]


def _of_one_tensor(op: Any, device: torch.device) -> dict[str, Callable[[], Any]]:
    rows = torch.ones(8, 16, device=device)
    data, parameters = op.quantize(rows, 8, 4, op.Symmetric)
    one = torch.ones((), device=device)
    return {
        "quantize in 3 bits": lambda: op.quantize(rows, 8, 3, op.Symmetric),
        "quantize of a scalar": lambda: op.quantize(one, 1, 8, op.Symmetric),
        "quantize of an odd row in 4 bits": lambda: op.quantize(rows[:2, :15], 1, 4, op.Symmetric),
        "quantize in 7 groups": lambda: op.quantize(rows, 7, 8, op.Symmetric),
        "quantize of a flat tensor in 7 groups": lambda: op.quantize(rows.view(-1), 7, 8, op.Symmetric),
        "quantize in 0 groups": lambda: op.quantize(rows, 0, 8, op.Symmetric),
        "dequantize in 2 bits": lambda: op.dequantize(data, parameters, 8, 2, op.Symmetric),
        "dequantize of a scalar": lambda: op.dequantize(data[0, 0], parameters[:1], 1, 8, op.Symmetric),
        "dequantize with few parameters": lambda: op.dequantize(data, parameters[:4], 8, 4, op.Symmetric),
        "dequantize with many parameters": lambda: op.dequantize(data, parameters.repeat(2, 1), 8, 4, op.Symmetric),
        "dequantize of one kind as the other": lambda: op.dequantize(data, parameters, 8, 4, op.Asymmetric),
    }  # fmt: skip


def _between_devices(op: Any, device: torch.device) -> dict[str, Callable[[], Any]]:
    rows = torch.ones(8, 16, device=device)
    data, parameters = op.quantize(rows, 8, 4, op.Symmetric)
    return {
        "swizzle_quant in 5 bits": lambda: op.swizzle_quant(rows, 8, 5, op.Symmetric, 1, 2, 2),
        "swizzle_quant for 3 nodes": lambda: op.swizzle_quant(rows, 8, 4, op.Symmetric, 1, 3, 1),
        "swizzle_quant for 0 devices": lambda: op.swizzle_quant(rows, 8, 4, op.Symmetric, 1, 2, 0),
        "swizzle_quant of odd rows": lambda: op.swizzle_quant(rows[:1, :15], 1, 4, op.Symmetric, 1, 1, 1),
        "quantized_reduction in 3 bits": lambda: op.quantized_reduction(data, parameters, 8, 4, 3, op.Symmetric, 2),
        "quantized_reduction of 3 devices": lambda: op.quantized_reduction(
            data, parameters, 8, 4, 4, op.Symmetric, 3
        ),
        "quantized_reduction into 3 groups": lambda: op.quantized_reduction(
            data, parameters, 8, 3, 4, op.Symmetric, 2
        ),
        "loco_swizzle_quant with few errors": lambda: op.loco_swizzle_quant(
            rows, rows[:2].clone(), 0.5, 8, 4, op.Symmetric, 1, 2, 2
        ),
        "ds_quantize in 3 groups": lambda: op.ds_quantize_fp32(rows.clone(), 3, 8),
    }  # fmt: skip


def _unsigned(op: Any, device: torch.device) -> dict[str, Callable[[], Any]]:
    data, half = (
        torch.ones(64, device=device, dtype=torch.int8),
        torch.ones(8, device=device, dtype=torch.float16),
    )
    return {
        "integers without scales": lambda: op.dequantize_int8_to_half_experimental(
            data[:64], half[:2], half, 8, 8
        ),
        "integers without minima": lambda: op.dequantize_int8_to_half_experimental(
            data[:64], half, half[:2], 8, 8
        ),
        "fewer integers than groups": lambda: op.dequantize_int4_to_half_experimental(
            data[:16], half, half, 8, 8
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    "calls", [_of_one_tensor, _between_devices, _unsigned], ids=lambda calls: calls.__name__[1:]
)
def test_sizes_that_do_not_fit_are_refused(
    accelerator: DeepSpeedAccelerator, calls: Callable[..., Any]
) -> None:
    """Bits, groups, devices and buffers that do not fit are an error, not numbers out of other memory."""
    op, served = accelerator.create_op_builder("QuantizerBuilder").load(), []
    for what, call in calls(op, torch.device(accelerator.device())).items():
        try:
            call()
        except ValueError:
            continue
        except Exception as error:
            served.append(f"{what}: {type(error).__name__}: {error}")
        else:
            served.append(what)
    expect(
        not served,
        "the quantizer takes sizes that do not fit",
        found=f"no ValueError for {'; '.join(served)}",
        expected="a ValueError that names the size",
        do="check the sizes before anything is computed, as `accel_ops.quantizer`",
    )
