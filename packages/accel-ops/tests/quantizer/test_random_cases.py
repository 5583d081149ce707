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

F32 = np.float32
Array = np.ndarray[Any, Any]


def quantize(rows: Array, bits: int, asymmetric: bool) -> tuple[Array, Array]:
    """Return integers and parameters of float32 rows."""
    integers, parameters = [], []
    with np.errstate(all="ignore"):
        for row in rows:
            if asymmetric:
                high, low = np.max(row), np.min(row)
                span, levels, offset = F32(high - low), F32(2**bits), F32(F32(high + low) / F32(2))
            else:
                span, levels, offset = np.max(np.abs(row)), F32(2 ** (bits - 1)), F32(0)
            scale = F32(1) if span == 0 else F32(levels / span)
            exact = (row - offset) * scale if asymmetric else row * scale
            exact = np.where(np.isnan(exact), F32(0), exact)
            integers.append(np.clip(np.rint(exact), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype(np.int8))
            parameters.append([F32(1) / scale, offset][: 1 + asymmetric])
    return np.array(integers, np.int8).reshape(rows.shape), np.array(parameters, F32)


def dequantize(integers: Array, parameters: Array, asymmetric: bool) -> Array:
    """Return float32 rows."""
    with np.errstate(all="ignore"):
        values = integers.astype(F32) * parameters[:, :1]
        return values + parameters[:, 1:] if asymmetric else values


def pack(integers: Array, bits: int) -> Array:
    """Return bytes."""
    flat = integers.reshape(-1)
    if bits == 8:
        return flat
    pairs = [(int(low) & 15) | (int(high) & 15) << 4 for low, high in zip(flat[::2], flat[1::2], strict=True)]
    return np.array(pairs, np.uint8).view(np.int8)


def place(groups: int, pipeline: int, nodes: int, devices: int) -> list[int]:
    """Return for each group the place to which it is sent."""
    places = []
    run = groups // (pipeline * nodes * devices)
    for group in range(groups):
        row, slice_, partition = group % run, group // run % pipeline, group // run // pipeline
        node, device = partition // devices, partition % devices
        places.append(((slice_ * devices + device) * nodes + node) * run + row)
    return places


def moved(rows: Array, places: list[int]) -> Array:
    """Return rows with row i at places[i]."""
    result = np.empty_like(rows)
    result[places] = rows
    return result


def rounded(values: Array, half: bool) -> Array:
    """Return float32 numbers, those of float16 if half."""
    with np.errstate(all="ignore"):
        return values.astype(np.float16).astype(F32) if half else values


def feedback(
    total: Array, error: Array, parameters: Array, integers: Array, beta: float, asym: bool, half: bool
) -> Array:
    """Return the new error of a step with error feedback."""
    with np.errstate(all="ignore"):
        missed = total - rounded(dequantize(integers, parameters, asym), half)
        new = error * F32(beta) + missed * F32(1 - beta)
    return np.where(np.isfinite(new), new, F32(0))


# --- random cases


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
    wanted, wanted_parameters = quantize(as_rows(values, groups), bits, asym)
    same(data, pack(wanted, bits))
    same(parameters, wanted_parameters)
    assert data.shape == (*shape[:-1], shape[-1] * bits // 8)
    assert parameters.shape == (groups, 1 + asym)
    back = dequantize(wanted, wanted_parameters, asym)
    same(op.dequantize_fp32(data, parameters, groups, bits, int(asym)), back)
    with np.errstate(over="ignore"):
        same(op.dequantize(data, parameters, groups, bits, int(asym)), back.astype(np.float16))


def swizzled(op: QuantizerFunctions, draw: random.Random, unit: int = 2) -> None:
    bits, asym, dtype = draw.choice([4, 8]), draw.random() < 0.5, draw.choice(DTYPES)
    order = draw.choice([(1, 1, 8), (1, 2, 4), (2, 2, 2), (1, 4, 1), (3, 1, 2), (1, 3, 2)])
    groups, width = order[0] * order[1] * order[2] * draw.randint(1, 3), draw.choice([1, 3, 16]) * unit
    values = numbers(draw, groups, width, dtype)
    places = place(groups, *order)
    data, parameters = op.swizzle_quant(values, groups, bits, int(asym), *order)
    wanted = [moved(x, places) for x in quantize(as_rows(values, groups), bits, asym)]
    same(data, pack(wanted[0], bits))
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
    wanted, wanted_parameters = quantize(rows, bits, asym)
    same(found[0], pack(wanted, bits))
    same(found[1], wanted_parameters)
    assert found[0].shape == (data.shape[0] // devices,)
    dtype, beta = draw.choice(DTYPES), draw.random()
    half = dtype == torch.float16
    error = (torch.randn(rows.size, generator=generator_of(draw)) * 0.1).to(dtype)
    before = as_rows(error, out_groups).copy()
    parts = rounded(values, half)
    total = parts[0].copy()
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            total = rounded(total + part, half)
        rows = rounded(total.reshape(out_groups, -1) + before, half)
    wanted, wanted_parameters = quantize(rows, bits, asym)
    after = torch.from_numpy(feedback(rows, before, wanted_parameters, wanted, beta, asym, half))
    found = op.loco_quantized_reduction(
        data, parameters, error, beta, groups, out_groups, bits, int(asym), devices
    )
    same(found[0], pack(wanted, bits))
    same(found[1], wanted_parameters)
    assert torch.equal(error, after.to(dtype).view(-1))


def swizzled_with_feedback(op: QuantizerFunctions, draw: random.Random, unit: int = 2) -> None:
    bits, asym, dtype = draw.choice([4, 8]), draw.random() < 0.5, draw.choice(DTYPES)
    order, beta = draw.choice([(1, 1, 4), (2, 2, 2), (1, 2, 2)]), draw.random()
    groups, width = order[0] * order[1] * order[2] * draw.randint(1, 2), draw.choice([1, 5]) * unit
    values = numbers(draw, groups, width, dtype)
    error = (torch.randn(groups * width, generator=generator_of(draw)) * 0.01).to(dtype)
    before = as_rows(error, groups).copy()
    total = moved(as_rows(values, groups), place(groups, *order))
    half = dtype == torch.float16
    with np.errstate(all="ignore"):
        total = rounded(total + before, half)
    wanted, parameters = quantize(total, bits, asym)
    found = op.loco_swizzle_quant(values, error, beta, groups, bits, int(asym), *order)
    same(found[0], pack(wanted, bits))
    same(found[1], parameters)
    after = torch.from_numpy(feedback(total, before, parameters, wanted, beta, asym, half))
    assert torch.equal(error, after.to(dtype).view(-1))


CASES = [quantized_and_back, swizzled, swizzled_with_feedback]


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_random_cases(op: Any, case: Callable[..., None], count: int) -> None:
    draw = random.Random(f"{count} {case.__name__}")
    for _ in range(count):
        case(op, draw)
