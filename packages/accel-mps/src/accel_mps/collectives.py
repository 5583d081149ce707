# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of mps tensors: gloo on copies in host memory, because torch has no kernels for them.

DeepSpeed 0.19.8 makes such copies itself. Older releases, and programs that call torch.distributed, need these
kernels, even with a single rank: DeepSpeed broadcasts parameters to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

#: Operations of torch.ops.c10d that write into their first argument (_WRITE), or into no argument (_READ).
_WRITE = (
    "allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_", "allgather_coalesced_",
    "_allgather_base_", "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_",
    "recv_", "recv_any_source_",
)  # fmt: skip
_READ = ("send",)
#: Pending works, kept alive until `wait`: C++ does not keep their Python objects.
_pending: set[Any] = set()


@cache
def register() -> Any:
    """Register the kernels, once per process; None if torch has its own, or does not accept works from Python."""
    if torch._C._dispatch_has_kernel_for_dispatch_key("c10d::allreduce_", "MPS"):
        return None
    if not hasattr(dist.Work, "unbox"):
        return None
    make: Any = torch.library.Library
    library = make("c10d", "IMPL")
    for name in _WRITE + _READ:
        if hasattr(torch.ops.c10d, name):
            library.impl(name, _through_host(name), "MPS")
    return library


def _through_host(name: str) -> Callable[..., Any]:
    op = getattr(torch.ops.c10d, name).default

    def kernel(written: Any, *others: Any) -> Any:
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        answer = op(_host(written, pairs), *(_host(other, []) for other in others))
        boxed = answer[1] if isinstance(answer, tuple) else answer
        work = _HostWork(dist.Work.unbox(boxed), [] if name in _READ else pairs).boxed()
        return (written, work) if isinstance(answer, tuple) else work

    return kernel


def _host(value: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return the value with mps tensors replaced by host copies; appends each tensor and its copy to `pairs`."""
    if isinstance(value, torch.Tensor) and value.device.type == "mps":
        pairs.append((value, value.cpu()))
        return pairs[-1][1]
    return [_host(item, pairs) for item in value] if isinstance(value, (list, tuple)) else value


class _HostWork(dist.Work):
    """gloo's work on the copies; `wait` copies the results to the device."""

    def __init__(self, work: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._work, self._pairs = work, pairs
        _pending.add(self)

    @override
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        done = bool(self._work.wait(timeout) if timeout else self._work.wait())
        for tensor, copy in self._pairs:
            tensor.copy_(copy)
        self._pairs = []
        _pending.discard(self)
        return done

    @override
    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    @override
    def _source_rank(self) -> int:
        """Return who sent, which torch asks for once a tensor from anyone has come."""
        return int(self._work._source_rank())
