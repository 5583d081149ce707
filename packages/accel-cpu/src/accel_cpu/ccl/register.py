# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes the backend `ccl` known to torch.distributed, unless Intel's bindings do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from accel_cpu import collectives
from accel_cpu.ccl import library

NAME = "ccl"


def register_backend() -> None:
    """Register the backend `ccl` where oneCCL is installed, and its bindings for torch are not or do not work."""
    if not dist.is_available() or library.folder() is None:
        return
    # Asked first: the bindings register the same name.
    if collectives.ONECCL.fault() is not None and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from accel_cpu.ccl.process_group import CclProcessGroup

    return CclProcessGroup(store, rank, size, timeout)
