# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op plain: dropped tokens, sums with biases and packed signs, of each type, shape, stride and size."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops import normal

pytestmark = pytest.mark.tier("device")

_DO = "compare each function with that of accel_ops.plain"
_numbers = partial(normal, seed=83)


@pytest.mark.needs("RandomLTDBuilder")
def test_tokens_are_kept_and_put_back(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """Tokens and masks of any type, contiguous or not, by indices of 32 and 64 bits; results are contiguous."""
    holds = Holds()
    for kind in (torch.int32, torch.int64):
        for dtype in {torch.float32, torch.int64, *accelerator.supported_dtypes()}:
            _tokens(op, device, kind, dtype, holds)
        ids = torch.tensor([[[3, 1, 2], [7, 0, 5]], [[9, 8, 0], [2, 1, 1]]], dtype=kind)
        ours = ids.to(device)
        found = op.token_sort_(ours, 10)
        holds.same(f"token_sort_ of {kind}", found, ids.sort(-1).values)
        holds[f"token_sort_ of {kind} in place"] = found.data_ptr() == ours.data_ptr()
        long = torch.randperm(5000, generator=torch.Generator().manual_seed(9))[:4100].view(2, 1, -1).to(kind)
        found = op.token_sort_(long.to(device), 5000)
        holds.same(f"token_sort_ of 2,050 {kind}", found, long.sort(-1).values)
    holds.expect("random_ltd", _DO)


def _tokens(op: Any, device: torch.device, kind: torch.dtype, dtype: torch.dtype, holds: Holds) -> None:
    case = f"{dtype} by {kind}"
    rows = (_numbers(3, 7, 4) * 8).to(dtype)
    index = torch.tensor([[0, 6], [2, 3], [1, 5]], dtype=kind)
    places = index.long().unsqueeze(-1).expand(-1, -1, 4)
    for batch_first in (True, False):

        def turned(tensor: torch.Tensor, batch_first: bool = batch_first) -> torch.Tensor:
            return tensor if batch_first else tensor.transpose(0, 1)

        # As views: each token's channels lie in every second element.
        given = turned(torch.zeros(3, 7, 8, dtype=dtype, device=device)[..., ::2].copy_(rows.to(device)))
        kept = op.token_gather(given, index.to(device), batch_first)
        wanted = rows.gather(1, places)
        holds.same(f"token_gather of {case}", kept, turned(wanted))
        holds[f"token_gather of {case} is contiguous"] = kept.is_contiguous()
        if dtype.is_floating_point:
            put = op.token_scatter_(given, kept * 2, index.to(device), batch_first)
            holds.same(f"token_scatter_ of {case}", put, turned(rows.scatter(1, places, wanted * 2)))
            holds[f"token_scatter_ of {case} in place"] = put.data_ptr() == given.data_ptr()
            # The gradient of a sum has one element in memory.
            one = torch.ones(1, dtype=dtype, device=device).expand(given.shape)
            put = op.token_scatter_(one, kept, index.to(device), batch_first)
            wanted = torch.ones_like(rows).scatter(1, places, wanted)
            holds.same(f"token_scatter_ of {case} into one element", put, turned(wanted))
    mask = (_numbers(3, 1, 7, 7) * 8).to(dtype)
    layers = torch.stack([index, index.flip(0)])
    found = op.mask_gather_bert(mask.to(device), layers.to(device))
    kept = [[mask[row][:, each][:, :, each] for row, each in enumerate(layer)] for layer in layers.long()]
    holds.same(f"mask_gather_bert of {case}", found, torch.stack([torch.stack(layer) for layer in kept]))
    heads = torch.cat([mask, mask + 1], 1).to(device)
    for length in (0, 1, 4, 7):
        found = op.mask_gather_gpt(heads, length)
        holds.same(f"mask_gather_gpt of {dtype}, the first {length}", found, mask[:, :, :length, :length])
        holds[f"mask_gather_gpt of {dtype} is contiguous"] = found.is_contiguous()


@pytest.mark.needs("SpatialInferenceBuilder")
def test_biases_are_those_of_channels(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """A bias is added to each channel of an image or of tokens, in each float type.

    Sums are rounded once, have the activation's type and strides, and are new tensors.
    """
    holds = Holds()
    for dtype in accelerator.supported_dtypes():
        bias, more = (_numbers(8, seed=seed).to(dtype) for seed in (3, 4))
        b, c = bias.to(device), more.to(device)
        column, second = bias.float().view(-1, 1, 1), more.float().view(-1, 1, 1)
        for layout in (torch.channels_last, torch.contiguous_format):
            image, other = (
                _numbers(2, 8, 3, 5, seed=seed).to(dtype).contiguous(memory_format=layout) for seed in (1, 2)
            )
            x, y = image.to(device), other.to(device)
            wide, there = image.float() + column, other.float()
            sums = {
                "nhwc_bias_add": (op.nhwc_bias_add(x, b), wide),
                "nhwc_bias_add_add": (op.nhwc_bias_add_add(x, b, y), wide + there),
                "nhwc_bias_add_bias_add": (op.nhwc_bias_add_bias_add(x, b, y, c), wide + (there + second)),
            }
            for name, (found, wanted) in sums.items():
                case = f"{name} of {dtype}, {layout}"
                holds.same(case, found, wanted.to(dtype))
                holds[f"{case}: strides"] = found.stride() == image.stride()
            holds.same(f"inputs of {dtype} stay", x, image)
            holds.same(f"others of {dtype} stay", y, other)
        # Also as many tokens as channels: the last dimension is the channels'.
        for tokens in (_numbers(2, 5, 8).to(dtype), _numbers(2, 8, 8).to(dtype)):
            found = op.nhwc_bias_add(tokens.to(device), b)
            holds.same(f"nhwc_bias_add of {tokens.shape[1]} tokens of {dtype}", found, tokens + bias)
    holds.expect("spatial_inference", _DO)


@pytest.mark.needs("PackbitsBuilder")
def test_signs_are_bits(accelerator: DeepSpeedAccelerator, op: Any, device: torch.device) -> None:
    """The first sign is in the highest bit: any number of signs of any float type, and 1 and -1 of any byte."""
    holds = Holds()
    for dtype in accelerator.supported_dtypes():
        given = _numbers(3, 11).to(dtype)
        given[0, :3] = torch.tensor([0.0, -0.0, torch.inf])
        bits = (~given.flatten().signbit()).tolist()
        for count in (0, 1, 7, 8, 9, 16, 33):
            filled = [*bits[:count], *[False] * (-count % 8)]
            wanted = [
                sum(bit << 7 - at for at, bit in enumerate(filled[first : first + 8]))
                for first in range(0, len(filled), 8)
            ]
            packed = op.packbits(given.to(device), count, 0)
            holds.same(f"{count} signs of {dtype}", packed, torch.tensor(wanted, dtype=torch.uint8))
            # DeepSpeed passes the rank in the whole job, which is no index of a device.
            far = op.packbits(given.to(device), count, 1001)
            holds.same(f"{count} signs of {dtype} in rank 1001", far, packed.cpu())
            holds[f"{count} signs of {dtype} in rank 1001, on their device"] = far.device == packed.device
    data = torch.arange(256, dtype=torch.uint8).view(16, 16)
    for count in (0, 1, 255, 256):
        signs = [1.0 if byte >> 7 - at & 1 else -1.0 for byte in range(count) for at in range(8)]
        for rank in (0, 1001):
            found = op.unpackbits(data.to(device), count, rank)
            holds.same(f"{count} bytes in rank {rank}", found, torch.tensor(signs))
    holds.expect("pack_bits", _DO)
