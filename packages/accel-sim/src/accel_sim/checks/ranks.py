# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the checks between ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist

#: Device types whose collectives have no average (csrc/distributed/rules.cpp).
NO_AVERAGE = ("mlu", "hpu")


def here() -> tuple[int, int, torch.device]:
    """Return this rank, the number of ranks, and this rank's device."""
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.accelerator.current_accelerator()
    assert device is not None
    return rank, size, torch.device(device.type, torch.accelerator.current_device_index())


def mine(*shape: int, value: float | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor on this rank's device, filled with the value, or with the rank."""
    rank, _, device = here()
    return torch.full(shape, rank if value is None else value, dtype=dtype, device=device)
