# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions with which DeepSpeed's class for the backend `ccl` reduces: on that backend of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder
from accel_cpu.backends import CCL, register_ccl
from accel_cpu.ccl import library


class CclComm:
    """Upstream's functions. Groups are lists of ranks; every call is done when it returns.

    Upstream makes communicators of its own, beside those of the backend `ccl`, for which the ranks exchange
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
        return False, "no oneCCL: pip install 'accel-cpu[ccl]'"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        register_ccl()
        return CclComm()
