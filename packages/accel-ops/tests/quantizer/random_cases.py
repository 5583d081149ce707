# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random sizes, types, bits and numbers, also NaN, for kernels of the quantizer: the bits of plain torch."""

import random
from typing import Any

import torch

from accel_ops.quantizers.quantizer import QuantizerFunctions

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
PLAIN = QuantizerFunctions()


def numbers(draw: random.Random, groups: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Groups of different magnitudes, some of zeros, of one number, on the borders of rounding, or not finite."""
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
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


def same(op: Any, name: str, *arguments: Any) -> Any:
    """Call a function of the op and of plain torch; compare what they return and write, bit by bit."""
    copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
    found, wanted = getattr(op, name)(*arguments), getattr(PLAIN, name)(*copies)
    listed = [[each] if isinstance(each, torch.Tensor) else [*each] for each in (found, wanted)]
    for ours, theirs in zip(listed[0] + [*arguments], listed[1] + copies, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours.cpu().nan_to_num(7.0, 8.0, 9.0), theirs.nan_to_num(7.0, 8.0, 9.0))
    return found


def quantized_and_back(op: Any, draw: random.Random, unit: int = 2) -> None:
    """unit: divides the size of a group."""
    how = draw.choice([4, 8]), draw.randrange(2)
    groups, width = draw.randint(1, 6), draw.choice([1, 2, 3, 7, 8, 64, 100]) * unit
    shape = draw.choice([(groups, width), (groups * width,), (1, groups, width)])
    pair = same(op, "quantize", numbers(draw, groups, width, draw.choice(DTYPES)).view(shape), groups, *how)
    for name in ("dequantize", "dequantize_fp32"):
        same(op, name, *pair, groups, *how)


def swizzled(op: Any, draw: random.Random, unit: int = 2) -> None:
    """Send groups to devices, and add up the parts of all."""
    bits, asym, dtype = draw.choice([4, 8]), draw.randrange(2), draw.choice(DTYPES)
    order = draw.choice([(1, 1, 8), (1, 2, 4), (2, 2, 2), (1, 4, 1), (3, 1, 2), (1, 3, 2)])
    groups, width = order[0] * order[1] * order[2] * draw.randint(1, 3), draw.choice([1, 3, 16]) * unit
    pair = same(op, "swizzle_quant", numbers(draw, groups, width, dtype), groups, bits, asym, *order)
    devices = order[2]
    out = draw.choice([n for n in (1, groups // devices, width) if groups * width // devices % n == 0])
    same(op, "quantized_reduction", *pair, groups, out, bits, asym, devices)


CASES = [quantized_and_back, swizzled]
