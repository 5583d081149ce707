# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer against numpy, to the last bit, over random sizes, types, bits and numbers, also NaN and infinities."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from accel_ops.quantizer import QuantizerBuilder, QuantizerFunctions

from . import reference

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


@pytest.fixture(scope="module")
def op() -> Any:
    return QuantizerBuilder().load()


def generator_of(draw: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(draw.getrandbits(32))


def numbers(draw: random.Random, groups: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Groups of different magnitudes, some of zeros, of one number, on the borders of rounding, or not finite."""
    generator = generator_of(draw)
    rows = torch.randn(groups, width, generator=generator)
    rows *= 10 ** (torch.rand(groups, 1, generator=generator) * 10 - 6)
    for row in rows:
        kind = draw.random()
        if kind < 0.05:
            row.fill_(0)
        elif kind < 0.1:
            row.fill_(draw.uniform(-3, 3))
        elif kind < 0.3:
            row.copy_(torch.randint(-256, 257, (width,), generator=generator) / 2)  # ties
            row[draw.randrange(width)] = 128
        elif kind < 0.35:
            row[draw.randrange(width)] = draw.choice([float("nan"), float("inf"), float("-inf")])
        elif kind < 0.4:
            row.abs_()
    return rows.to(dtype)


def as_rows(tensor: torch.Tensor, groups: int) -> Any:
    return tensor.detach().float().numpy().reshape(groups, -1)


def same(found: torch.Tensor, wanted: Any) -> None:
    ours = found.detach().cpu().numpy()
    assert ours.dtype == wanted.dtype
    np.testing.assert_array_equal(ours.reshape(-1), wanted.reshape(-1))


def quantized_and_back(op: QuantizerFunctions, draw: random.Random, unit: int = 2) -> None:
    """unit: divides the size of a group."""
    bits, asym, dtype = draw.choice([4, 8]), draw.random() < 0.5, draw.choice(DTYPES)
    groups, width = draw.randint(1, 6), draw.choice([1, 2, 3, 7, 8, 64, 100]) * unit
    values = numbers(draw, groups, width, dtype)
    shape = draw.choice([(groups, width), (groups * width,), (1, groups, width)])
    data, parameters = op.quantize(values.view(shape), groups, bits, op.QuantizationType(asym))
    wanted, wanted_parameters = reference.quantize(as_rows(values, groups), bits, asym)
    same(data, reference.pack(wanted, bits))
    same(parameters, wanted_parameters)
    assert data.shape == (*shape[:-1], shape[-1] * bits // 8)
    assert parameters.shape == (groups, 1 + asym)
    back = reference.dequantize(wanted, wanted_parameters, asym)
    same(op.dequantize_fp32(data, parameters, groups, bits, int(asym)), back)
    with np.errstate(over="ignore"):
        same(op.dequantize(data, parameters, groups, bits, int(asym)), back.astype(np.float16))


def swizzled(op: QuantizerFunctions, draw: random.Random, unit: int = 2) -> None:
    bits, asym, dtype = draw.choice([4, 8]), draw.random() < 0.5, draw.choice(DTYPES)
    order = draw.choice([(1, 1, 8), (1, 2, 4), (2, 2, 2), (1, 4, 1), (3, 1, 2), (1, 3, 2)])
    groups, width = order[0] * order[1] * order[2] * draw.randint(1, 3), draw.choice([1, 3, 16]) * unit
    values = numbers(draw, groups, width, dtype)
    places = reference.place(groups, *order)
    data, parameters = op.swizzle_quant(values, groups, bits, int(asym), *order)
    wanted = [reference.moved(x, places) for x in reference.quantize(as_rows(values, groups), bits, asym)]
    same(data, reference.pack(wanted[0], bits))
    same(parameters, wanted[1])
    assert data.dim() == 1
    reduced(op, draw, data, parameters, (groups, width, bits, asym, order[2]))


def reduced(
    op: QuantizerFunctions, draw: random.Random, data: torch.Tensor, parameters: Any, sizes: Any
) -> None:
    """The sum of the parts of all devices, with and without error feedback."""
    groups, width, bits, asym, devices = sizes
    out_groups = draw.choice([n for n in (1, groups // devices, width) if groups * width // devices % n == 0])
    values = op.dequantize_fp32(data, parameters, groups, bits, int(asym)).numpy().reshape(devices, -1)
    total = values[0].copy()
    with np.errstate(all="ignore"):
        for value in values[1:]:
            total = total + value
    rows = total.reshape(out_groups, -1)
    found = op.quantized_reduction(data, parameters, groups, out_groups, bits, int(asym), devices)
    wanted, wanted_parameters = reference.quantize(rows, bits, asym)
    same(found[0], reference.pack(wanted, bits))
    same(found[1], wanted_parameters)
    assert found[0].shape == (data.shape[0] // devices,)
    dtype, beta = draw.choice(DTYPES), draw.random()
    half = dtype == torch.float16
    error = (torch.randn(rows.size, generator=generator_of(draw)) * 0.1).to(dtype)
    before = as_rows(error, out_groups).copy()
    parts = reference.rounded(values, half)
    total = parts[0].copy()
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            total = reference.rounded(total + part, half)
        rows = reference.rounded(total.reshape(out_groups, -1) + before, half)
    wanted, wanted_parameters = reference.quantize(rows, bits, asym)
    after = torch.from_numpy(reference.feedback(rows, before, wanted_parameters, wanted, beta, asym, half))
    found = op.loco_quantized_reduction(
        data, parameters, error, beta, groups, out_groups, bits, int(asym), devices
    )
    same(found[0], reference.pack(wanted, bits))
    same(found[1], wanted_parameters)
    assert torch.equal(error, after.to(dtype).view(-1))


def swizzled_with_feedback(op: QuantizerFunctions, draw: random.Random, unit: int = 2) -> None:
    bits, asym, dtype = draw.choice([4, 8]), draw.random() < 0.5, draw.choice(DTYPES)
    order, beta = draw.choice([(1, 1, 4), (2, 2, 2), (1, 2, 2)]), draw.random()
    groups, width = order[0] * order[1] * order[2] * draw.randint(1, 2), draw.choice([1, 5]) * unit
    values = numbers(draw, groups, width, dtype)
    error = (torch.randn(groups * width, generator=generator_of(draw)) * 0.01).to(dtype)
    before = as_rows(error, groups).copy()
    total = reference.moved(as_rows(values, groups), reference.place(groups, *order))
    half = dtype == torch.float16
    with np.errstate(all="ignore"):
        total = reference.rounded(total + before, half)
    wanted, parameters = reference.quantize(total, bits, asym)
    found = op.loco_swizzle_quant(values, error, beta, groups, bits, int(asym), *order)
    same(found[0], reference.pack(wanted, bits))
    same(found[1], parameters)
    after = torch.from_numpy(reference.feedback(total, before, parameters, wanted, beta, asym, half))
    assert torch.equal(error, after.to(dtype).view(-1))


CASES = [quantized_and_back, swizzled, swizzled_with_feedback]


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_random_cases(op: Any, case: Callable[..., None], count: int) -> None:
    draw = random.Random(f"{count} {case.__name__}")
    for _ in range(count):
        case(op, draw)
