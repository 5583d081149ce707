# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes this package's backends known to torch.distributed."""

from __future__ import annotations

from accel_cpu.ccl import register as ccl
from accel_cpu.shm import register as shm


def register_backend() -> None:
    """Register `shm`, and `ccl` where oneCCL is installed and its bindings for torch are not. Idempotent."""
    shm.register_backend()
    ccl.register_backend()
