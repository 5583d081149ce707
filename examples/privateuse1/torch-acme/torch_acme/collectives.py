# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `acmeccl` of torch.distributed: gloo on copies in host memory.

A vendor's own library (NCCL, HCCL, …) moves data between devices; this one shows where it is plugged in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

#: Methods of a group that write their first argument, and those that write nothing. The second names of some are
#: torch's from release 2.13 on.
_WRITING = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter", "recv", "recv_anysource",
    "allgather", "allgather_coalesced", "_allgather_base", "all_gather_single",
    "allgather_into_tensor_coalesced", "all_gather_single_coalesced",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced",
    "alltoall", "alltoall_base", "all_to_all_single",
)  # fmt: skip
_READING = ("send", "barrier")


class HostGroup(dist.ProcessGroup):
    """A group whose operations run on a gloo group of the host."""

    def __init__(self, rank: int, size: int, gloo: dist.ProcessGroup) -> None:
        super().__init__(rank, size)
        self._gloo = gloo

    def getBackendName(self) -> str:
        """What `torch.distributed.get_backend` answers."""
        return "acmeccl"


class HostWork(dist.Work):
    """An operation on host copies; waiting for it brings the results to the device."""

    def __init__(self, work: dist.Work, results: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._work, self._results = work, results

    def wait(self, *timeout: timedelta) -> bool:
        """Block until the results are on the device."""
        self._work.wait(*timeout)
        for tensor, copy in self._results:
            tensor.copy_(copy)
        self._results = []
        return True

    def is_completed(self) -> bool:
        """Whether waiting would not block."""
        return self._work.is_completed()


def _to_host(value: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """The value with host copies in place of device tensors, each added to `copies` beside its tensor."""
    if isinstance(value, torch.Tensor) and value.device.type == "acme":
        copies.append((value, value.cpu()))
        return copies[-1][1]
    return [_to_host(item, copies) for item in value] if isinstance(value, (list, tuple)) else value


def _method(name: str) -> Callable[..., HostWork]:
    def run(self: HostGroup, *arguments: Any, **options: Any) -> HostWork:
        written: list[tuple[torch.Tensor, torch.Tensor]] = []
        host = [_to_host(value, [] if place else written) for place, value in enumerate(arguments)]
        work = getattr(self._gloo, name)(*host, **options)
        return HostWork(work, written if name in _WRITING else [])

    return run


for _name in _WRITING + _READING:
    if hasattr(dist.ProcessGroup, _name):
        setattr(HostGroup, _name, _method(_name))


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> HostGroup:
    kind = dist.ProcessGroup.BackendType.GLOO
    gloo = dist.ProcessGroup(store, rank, size)
    gloo._register_backend(torch.device("cpu"), kind, dist.ProcessGroupGloo(store, rank, size, timeout))
    gloo._set_default_backend(kind)
    return HostGroup(rank, size, gloo)


def register() -> None:
    """Give torch.distributed the backend."""
    dist.Backend.register_backend("acmeccl", _create, devices=["acme"])
