# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""This package's backends of torch.distributed, and which backend CPU ranks use."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import Bindings, Collectives, torch_threads
from accel_cpu import launch
from accel_cpu.ccl import library

GLOO, SHM, CCL = "gloo", "shm", "ccl"
ONECCL = Bindings("oneccl_bindings_for_pytorch", "oneccl_bind_pt", backend=CCL, device="cpu")


def choose() -> Collectives:
    """Return the backend that ACCEL_CPU_BACKEND names, else `ccl` if oneCCL's bindings serve this torch, else `shm`.

    `shm` is safe on any number of hosts: its process group uses gloo where the ranks cannot share memory. Raises
    InvalidEnvironment for other names, and OneCCLFailed if the variable names `ccl` and there is none. Imports torch
    only where the bindings are installed.
    """
    asked = launch.BACKEND.get().strip()
    if asked not in ("", GLOO, SHM, CCL):
        raise InvalidEnvironment(
            f"cannot read {launch.BACKEND.name}, the backend of the collectives: {launch.BACKEND.name}={asked!r}; "
            f"expected {GLOO}, {SHM} or {CCL}",
            do=f"unset {launch.BACKEND.name}, which gives {_best().backend}, or set it to one of these",
        )
    if asked == CCL and ONECCL.fault() is not None and library.folder() is None:
        raise library.missing()
    return Collectives(asked, f"{launch.BACKEND.name}={asked}") if asked else _best()


def _best() -> Collectives:
    return ONECCL.or_else(SHM if hasattr(os, "memfd_create") else GLOO)


def register_backend() -> None:
    """Register `shm`, and `ccl` where oneCCL is installed and its bindings for torch are not. Idempotent."""
    register_shm()
    register_ccl()


def register_shm() -> None:
    """Register the backend `shm`, for `init_process_group("shm")` and `"cpu:shm"`. Idempotent.

    torch calls it when somebody names the backend: entry point group `torch.distributed.backends`.
    """
    import torch.distributed as dist

    torch_threads.finish_at_exit()  # gloo's, which it uses, too
    if dist.is_available() and SHM not in dist.Backend.backend_list:
        dist.Backend.register_backend(SHM, _shm, devices=["cpu"])


def register_ccl() -> None:
    """Register the backend `ccl` where oneCCL is installed, and its bindings for torch are not or do not work."""
    import torch.distributed as dist

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
