# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op plain forms: types, shapes, strides and sizes of token dropping, sums with biases and packed signs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = pytest.mark.tier("device")

_DO = "compare each function with that of accel_ops.plain"

_INTEGERS = (torch.int32, torch.int64)


def _numbers(*shape: int, seed: int = 83) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.needs("RandomLTDBuilder")
def test_tokens_of_every_type_are_dropped(accelerator: DeepSpeedAccelerator, device: torch.device) -> None:
    """Tokens and masks of any type, contiguous or not, by indices of 32 and 64 bits; results are contiguous."""
    op, holds = accelerator.create_op_builder("RandomLTDBuilder").load(), Holds()
    for kind in _INTEGERS:
        for dtype in {torch.float32, torch.int64, *accelerator.supported_dtypes()}:
            _tokens(op, device, kind, dtype, holds)
        ids = torch.tensor([[[3, 1, 2], [7, 0, 5]], [[9, 8, 0], [2, 1, 1]]], dtype=kind)
        ours = ids.to(device)
        found = op.token_sort_(ours, 10)
        holds.same(f"token_sort_ of {kind}", found, ids.sort(-1).values)
        holds[f"token_sort_ of {kind} in place"] = found.data_ptr() == ours.data_ptr()
        long = torch.randperm(5000, generator=torch.Generator().manual_seed(9))[:4100].view(2, 1, -1).to(kind)
        holds.same(
            f"token_sort_ of 2,050 {kind}", op.token_sort_(long.to(device), 5000), long.sort(-1).values
        )
    holds.expect("random_ltd", _DO)


def _tokens(op: Any, device: torch.device, kind: torch.dtype, dtype: torch.dtype, holds: Holds) -> None:
    case = f"{dtype} by {kind}"
    rows = (_numbers(3, 7, 4) * 8).to(dtype)
    index = torch.tensor([[0, 6], [2, 3], [1, 5]], dtype=kind)
    places = index.long().unsqueeze(-1).expand(-1, -1, 4)
    for batch_first in (True, False):
        # As views: each token's channels lie in every second element.
        spread = torch.zeros(3, 7, 8, dtype=dtype, device=device)[..., ::2].copy_(rows.to(device))
        given = spread if batch_first else spread.transpose(0, 1)
        kept = op.token_gather(given, index.to(device), batch_first)
        wanted = rows.gather(1, places)
        wanted = wanted if batch_first else wanted.transpose(0, 1)
        holds.same(f"token_gather of {case}", kept, wanted)
        holds[f"token_gather of {case} is contiguous"] = kept.is_contiguous()
        if dtype.is_floating_point:
            put = op.token_scatter_(given, kept * 2, index.to(device), batch_first)
            wanted = rows.scatter(1, places, rows.gather(1, places) * 2)
            holds.same(f"token_scatter_ of {case}", put, wanted if batch_first else wanted.transpose(0, 1))
            holds[f"token_scatter_ of {case} in place"] = put.data_ptr() == given.data_ptr()
    mask = (_numbers(3, 1, 7, 7) * 8).to(dtype)
    layers = torch.stack([index, index.flip(0)])
    found = op.mask_gather_bert(mask.to(device), layers.to(device))
    wanted = torch.stack(
        [
            torch.stack([mask[row, 0][each][:, each] for row, each in enumerate(layer)])
            for layer in layers.long()
        ]
    )
    holds.same(f"mask_gather_bert of {case}", found, wanted.unsqueeze(2))
    heads = torch.cat([mask, mask + 1], 1).to(device)
    for length in (0, 1, 4, 7):
        found = op.mask_gather_gpt(heads, length)
        holds.same(f"mask_gather_gpt of {dtype}, the first {length}", found, mask[:, :, :length, :length])
        holds[f"mask_gather_gpt of {dtype} is contiguous"] = found.is_contiguous()


@pytest.mark.needs("SpatialInferenceBuilder")
def test_sums_round_once_and_keep_their_strides(
    accelerator: DeepSpeedAccelerator, device: torch.device
) -> None:
    """In each float type the sums are rounded once, have the activation's type and strides, and are new tensors."""
    op, holds = accelerator.create_op_builder("SpatialInferenceBuilder").load(), Holds()
    for dtype in accelerator.supported_dtypes():
        for layout in (torch.channels_last, torch.contiguous_format):
            image, other = (
                _numbers(2, 6, 3, 5, seed=seed).to(dtype).contiguous(memory_format=layout) for seed in (1, 2)
            )
            bias, more = (_numbers(6, seed=seed).to(dtype) for seed in (3, 4))
            x, y, b, c = (tensor.to(device) for tensor in (image, other, bias, more))
            column, second = bias.float().view(-1, 1, 1), more.float().view(-1, 1, 1)
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
    holds.expect("spatial_inference", _DO)


@pytest.mark.needs("PackbitsBuilder")
def test_signs_of_any_count_are_packed(accelerator: DeepSpeedAccelerator, device: torch.device) -> None:
    """Any number of the first signs of a tensor of any float type and shape; what is behind them is left out."""
    op, holds = accelerator.create_op_builder("PackbitsBuilder").load(), Holds()
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
