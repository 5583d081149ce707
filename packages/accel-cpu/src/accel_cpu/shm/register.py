# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes the backend `shm` known to torch.distributed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from accel_core.vendor import torch_threads

NAME = "shm"


def register_backend() -> None:
    """Register the backend `shm`, for `init_process_group("shm")` and `"cpu:shm"`. Idempotent."""
    torch_threads.finish_at_exit()  # gloo's, which is beside it
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from accel_cpu.shm.process_group import ShmProcessGroup

    return ShmProcessGroup(store, rank, size, timeout)
