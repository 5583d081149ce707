# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's all-reduce for tensor-parallel inference, on the shared-memory collectives."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from accel_core.op_builder import Implementation, OpBuilder
from accel_cpu.backends import SHM, register_shm


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
        dist.all_reduce(tensor, group=_group(dist.group.WORLD))
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
