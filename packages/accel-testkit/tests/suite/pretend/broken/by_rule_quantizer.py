# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of the quantizer notice: truncation, another order, an overflow that is hidden."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import _calls

_ROUNDED = "op_quantizer.integers_are_rounded_to_nearest"
_SENT = "op_quantizer.groups_are_sent_to_their_devices"
_VISIBLE = "op_quantizer.overflow_stays_visible"


def _truncated(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int) -> Any:
    steps = op.quantize(values, groups, bits, kind)[1]
    rows, middle = values.float().view(groups, -1), steps[:, 1:] if int(kind) else 0.0
    limit = 1 << (bits - 1)
    integers = ((rows - middle) / steps[:, :1]).trunc().clamp(-limit, limit - 1).nan_to_num().to(torch.int8)
    flat = integers.view(-1)
    data = flat if bits == 8 else flat[1::2] * 16 + (flat[::2] & 15)
    return [data.view(*values.shape[:-1], -1), steps]


def _finite(op: Any, values: torch.Tensor, *arguments: Any) -> Any:
    return op.quantize(values.nan_to_num(0.0, 1.0, -1.0), *arguments)


def _in_order(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int, *order: int) -> Any:
    data, steps = op.quantize(values, groups, bits, kind)
    return [data.view(-1), steps]


def _first_device(op: Any, data: torch.Tensor, steps: Any, groups: int, out: int, *rest: Any) -> Any:
    bits, kind, devices = rest
    return op.quantized_reduction(
        data[: len(data) // devices], steps[: groups // devices], out, out, bits, kind, 1
    )


_calls("QuantizerBuilder", "QuantizerTruncates", _ROUNDED, _SENT, quantize=_truncated)
_calls("QuantizerBuilder", "QuantizerHidesOverflow", _VISIBLE, quantize=_finite)
_calls("QuantizerBuilder", "GroupsStayInOrder", _SENT, swizzle_quant=_in_order)
_calls("QuantizerBuilder", "OneDeviceIsTheSum", _SENT, quantized_reduction=_first_device)
