# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer written once more with numpy, in float32, a group at a time."""

from typing import Any

import numpy as np

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
