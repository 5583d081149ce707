# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Find devices that no longer compute, for code that catches an error of a device: it may be the only one."""

from __future__ import annotations

import itertools

import torch

from accel_core.errors import in_short

_numbers = itertools.cycle(range(1, 100))


def wrong_sum(device: torch.device | str) -> str:
    """Return what is wrong with an addition on the device; empty if nothing is."""
    number = next(_numbers)
    try:
        # In place: dropped work leaves the number as it is, while new memory may hold the sum of an earlier call.
        # The conversion is for `deepspeed.zero.Init`, which replaces torch.full and ignores its dtype.
        found = torch.full((2,), number).to(device, torch.float32).add_(1).tolist()
    except Exception as error:
        return f"an addition raises {type(error).__name__}: {in_short(error)[:200]}"
    return "" if found == [number + 1] * 2 else f"{number} + 1 is {found[0]:g}"


def is_lost(device: torch.device) -> bool:
    """Return whether a device that this process has no longer computes; False for that of a fake tensor."""
    return bool(torch.get_device_module(device).is_available() and wrong_sum(device))
