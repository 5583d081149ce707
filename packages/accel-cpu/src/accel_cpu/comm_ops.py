# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ops that communicate, on this package's backends of torch.distributed.

They are its all-reduce for tensor-parallel inference, and what its class for the backend `ccl` calls.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder
from accel_cpu.backends import CCL, SHM, register_ccl, register_shm
from accel_cpu.ccl import library


class ShareMemComm:
    """Upstream's functions.

    Upstream also defines `torch.ops.deepspeed.inference_all_reduce_`. That operator is missing here on purpose: where
    it exists DeepSpeed calls it with neither the process group nor the operation, whatever they are. Without it
    DeepSpeed calls `torch.distributed.all_reduce` with both, which the backend `shm` runs on the same memory.
    """

    def initialize(self, size: int, rank: int) -> None:
        """Do nothing: the first reduction makes the ranks share memory. Upstream does it here, by LOCAL_SIZE."""

    def vector_kernel_level(self) -> int:
        """Return 0, for the reason above: from level 1 on DeepSpeed 0.19 looks for the operator."""
        return 0

    def inference_all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        return self.inference_all_reduce_(tensor.clone())

    def inference_all_reduce_(self, tensor: Tensor) -> Tensor:
        """Sum over all ranks, in place; any dtype, shape and stride. Returns the tensor."""
        group = _group(dist.group.WORLD)
        if not group.reduced_at_once(tensor, 0):
            dist.all_reduce(tensor, group=group)
        return tensor


@functools.lru_cache(1)
def _group(world: Any) -> Any:
    """Return the ranks' group of the backend shm; called by all ranks."""
    register_shm()
    return world if dist.get_backend(world) == SHM else dist.new_group(backend=SHM)


class ShareMemCommBuilder(OpBuilder):
    """Builds `deepspeed_shm_comm`. Its library is loaded, or compiled, at the first reduction."""

    NAME = "deepspeed_shm_comm"
    BUILD_VAR = "DS_BUILD_SHM_COMM"
    IMPLEMENTATIONS = (Implementation.HOST, Implementation.COMPILED)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return whether this is Linux: other systems have no anonymous shared files."""
        if hasattr(os, "memfd_create"):
            return True, "memory that the processes of one host share"
        return False, "needs Linux; gloo serves collectives"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        return ShareMemComm()


class CclComm:
    """Upstream's functions. Groups are lists of ranks; every call is done when it returns.

    Upstream makes its own communicators, in addition to those of the backend `ccl`, for which the ranks exchange
    addresses. Here both are the same, and the addresses mean nothing.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], Any] = {}

    def get_available_coll(self) -> list[str]:
        """Return the names of the collectives here; DeepSpeed calls torch.distributed for the others."""
        return ["broadcast", "all_reduce", "inference_all_reduce", "all_reduce_caching", "barrier"]

    def get_kvs_addr(self, rank: int) -> list[int]:
        return [0]

    def get_sub_kvs_addr(self, first: bool) -> list[int]:
        return [0]

    def initialize(self, size: int, rank: int, kvs: Tensor) -> None:
        self._groups[tuple(range(size))] = dist.group.WORLD

    def initialize_sub_comm(self, size: int, rank: int, kvs: Tensor, ranks: Sequence[int]) -> None:
        """Make the group of `ranks`; called by these only."""
        self._groups[tuple(ranks)] = dist.new_group(list(ranks), use_local_synchronization=True)

    def get_rank(self, group: Sequence[int] | None = None) -> int:
        return dist.get_rank()

    def get_world_size(self, group: Sequence[int] | None = None) -> int:
        return dist.get_world_size()

    def broadcast(self, tensor: Tensor, source: int, ranks: Sequence[int], async_op: bool = False) -> None:
        """source: index in `ranks`."""
        dist.broadcast(tensor, ranks[source], group=self._groups[tuple(ranks)])

    def all_reduce(self, tensor: Tensor, op: Any, ranks: Sequence[int], async_op: bool = False) -> None:
        dist.all_reduce(tensor, op=_operation(op), group=self._groups[tuple(ranks)])

    def all_reduce_caching(
        self, tensor: Tensor, op: Any, match_id: str, ranks: Sequence[int], async_op: bool = False
    ) -> None:
        self.all_reduce(tensor, op, ranks)

    def inference_all_reduce(self, tensor: Tensor, op: Any) -> None:
        """Reduce over all ranks."""
        dist.all_reduce(tensor, op=_operation(op))

    def barrier(self, ranks: Sequence[int], async_op: bool = False) -> None:
        dist.barrier(group=self._groups[tuple(ranks)])


def _operation(op: Any) -> Any:
    """Return torch's operation for DeepSpeed's or torch's: both have the same names."""
    return getattr(dist.ReduceOp, str(op).rpartition(".")[2])


class CCLCommBuilder(OpBuilder):
    """Builds `deepspeed_ccl_comm`, which needs no compiler."""

    NAME = "deepspeed_ccl_comm"
    BUILD_VAR = "DS_BUILD_CCL_COMM"
    IMPLEMENTATIONS = (Implementation.HOST,)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return whether there is a backend `ccl`."""
        register_ccl()
        if dist.is_available() and dist.is_backend_available(CCL):
            home = library.folder()
            return True, "the backend ccl, of " + (f"oneCCL in {home}" if home else "Intel's bindings")
        return False, str(library.missing())

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        register_ccl()
        return CclComm()
