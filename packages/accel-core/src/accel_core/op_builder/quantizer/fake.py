# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rounding of numbers in place to those that an integer of some bits can stand for (DeepSpeed 0.18's MoQ)."""

from __future__ import annotations

import torch

from accel_core.op_builder.quantizer import checks

#: DeepSpeed adds it to the range of a group, so that a group of zeros is not divided by zero.
_SMALL = 1e-5


@torch.no_grad()
def fake_quantized(
    what: str, vals: torch.Tensor, groups: int, bits: int, *, asymmetric: bool, stochastic: bool
) -> torch.Tensor:
    """Round `vals` in place, computed in float32; return them. A group with a NaN or an infinity becomes NaN."""
    checks.floating(what, "vals", vals)
    width = checks.width(what, vals.numel(), groups)
    if not vals.numel():
        return vals
    rows = vals.detach().reshape(groups, width).to(torch.float32)  # perhaps `vals` itself
    highest, lowest = rows.amax(1, keepdim=True), rows.amin(1, keepdim=True)
    if asymmetric:
        limits = 0, (1 << bits) - 1
        step = (highest - lowest).add_(_SMALL).div_(1 << bits)
        rows.sub_(lowest)
    else:
        limits = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        step = torch.maximum(highest, lowest.neg()).mul_(2).add_(_SMALL).div_(1 << bits)
    rows.div_(step)
    rounded = rows.add_(torch.rand_like(rows)).floor_() if stochastic else rows.round_()
    rounded.clamp_(*limits).mul_(step)
    if asymmetric:
        rounded.add_(lowest)
    # 0 times an infinite step is NaN, but an integer times it is infinite: one kind for the whole group.
    rounded.masked_fill_(~step.isfinite(), torch.nan)
    vals.detach().copy_(rounded.view(vals.shape))
    return vals
