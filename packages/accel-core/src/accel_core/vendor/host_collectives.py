# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives for a runtime without its own: gloo on copies in host memory.

Call `register("xyz")` in the accelerator's constructor, and pass `collectives="gloo"`. Replace both once the runtime
registers a backend with `torch.distributed.Backend.register_backend`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

__all__ = ["register"]

#: Operations of torch.ops.c10d that write into their first argument (_WRITE), or into no argument (_READ).
_WRITE = (
    "allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_", "allgather_coalesced_",
    "_allgather_base_", "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_",
    "recv_", "recv_any_source_",
)  # fmt: skip
_READ = ("send",)
#: torch's kernels for this key call the vendor's backend.
_THIRD_PARTY = "PrivateUse1"
#: Pending works, kept alive until `wait`: C++ does not keep their Python objects.
_pending: set[Any] = set()


@cache
def register(device_type: str) -> Any:
    """Let groups with the backend gloo exchange tensors of this device type, through copies in host memory.

    Register kernels once per process and return their library. Return None if torch has its own for the type.
    """
    key = torch._C._dispatch_key_for_device(device_type)
    torchs = torch._C._dispatch_has_kernel_for_dispatch_key("c10d::allreduce_", key)
    if torchs and key != _THIRD_PARTY:
        return None
    make: Any = torch.library.Library
    library = make("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*[Oo]verrid", UserWarning)
        for name in _WRITE + _READ:
            if hasattr(torch.ops.c10d, name):
                library.impl(name, _through_host(name, device_type), key)
    return library


def _through_host(name: str, device_type: str) -> Callable[..., Any]:
    op = getattr(torch.ops.c10d, name).default

    def kernel(written: Any, *others: Any) -> Any:
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        result = op(_host(written, device_type, pairs), *(_host(other, device_type, []) for other in others))
        boxed = result[1] if isinstance(result, tuple) else result
        work = _HostWork(dist.Work.unbox(boxed), [] if name in _READ else pairs).boxed()
        return (written, work) if isinstance(result, tuple) else work

    return kernel


def _host(value: Any, device_type: str, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return the value with host copies of the device's tensors; appends each tensor and its copy to `pairs`."""
    if isinstance(value, torch.Tensor) and value.device.type == device_type:
        pairs.append((value, value.detach().cpu()))
        return pairs[-1][1]
    return [_host(each, device_type, pairs) for each in value] if isinstance(value, (list, tuple)) else value


class _HostWork(dist.Work):
    """Work of gloo on the copies; `wait` copies the results to the device."""

    def __init__(self, work: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._work, self._pairs = work, pairs
        _pending.add(self)

    @override
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        done = bool(self._work.wait(timeout) if timeout else self._work.wait())
        self._finish()
        return done

    def _finish(self) -> list[torch.Tensor]:
        tensors = [tensor for tensor, _ in self._pairs]
        with torch.no_grad():
            for tensor, copy in self._pairs:
                tensor.copy_(copy)
        self._pairs = []
        _pending.discard(self)
        return tensors

    @override
    def get_future(self) -> Any:
        """Return a future of the results, for which torch's DistributedDataParallel waits."""
        return self._work.get_future().then(lambda _copies: self._finish())

    @override
    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    @override
    def _source_rank(self) -> int:
        """Return the sender, which torch reads after a receive from any rank."""
        return int(self._work._source_rank())
