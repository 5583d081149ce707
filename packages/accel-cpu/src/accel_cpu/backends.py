# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""This package's backends of torch.distributed, and which backend CPU ranks use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from accel_core.vendor import Bindings, Collectives, torch_threads
from accel_cpu.ccl import library

SHM, CCL = "shm", "ccl"
ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend=CCL, device="cpu")


def choose() -> Collectives:
    """Return `ccl` if oneCCL's bindings import, fit this torch and register it; else `gloo`. Does not raise."""
    return ONECCL.or_else("gloo")


def register_backend() -> None:
    """Register `shm`, and `ccl` where oneCCL is installed and its bindings for torch are not. Idempotent."""
    register_shm()
    register_ccl()


def register_shm() -> None:
    """Register the backend `shm`, for `init_process_group("shm")` and `"cpu:shm"`. Idempotent."""
    torch_threads.finish_at_exit()  # gloo's, which is beside it
    if dist.is_available() and SHM not in dist.Backend.backend_list:
        dist.Backend.register_backend(SHM, _shm, devices=["cpu"])


def register_ccl() -> None:
    """Register the backend `ccl` where oneCCL is installed, and its bindings for torch are not or do not work."""
    if not dist.is_available() or library.folder() is None:
        return
    # Asked first: the bindings register the same name.
    if ONECCL.fault() is not None and CCL not in dist.Backend.backend_list:
        dist.Backend.register_backend(CCL, _ccl, devices=["cpu"])


def _shm(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from accel_cpu.shm.process_group import ShmProcessGroup

    return ShmProcessGroup(store, rank, size, timeout)


def _ccl(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from accel_cpu.ccl.process_group import CclProcessGroup

    return CclProcessGroup(store, rank, size, timeout)
