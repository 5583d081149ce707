# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops of core in plain torch, and the two that are about memory."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from accel_good.op_builder.optimizers import PlainTorch
from accel_ops.fp_quantizer import FPQuantizerBuilder
from accel_ops.fused_optimizers import FusedLambBuilder, FusedLionBuilder
from accel_ops.inference import InferenceBuilder, InferenceCoreBuilder
from accel_ops.plain import EvoformerAttnBuilder, PackbitsBuilder, RandomLTDBuilder, SpatialInferenceBuilder
from accel_ops.quantizer import QuantizerBuilder

__all__ = [
    "EvoformerAttnBuilder", "FPQuantizerBuilder", "FusedLambBuilder", "FusedLionBuilder", "InferenceBuilder",
    "InferenceCoreBuilder", "PackbitsBuilder", "PinMemoryBuilder", "QuantizerBuilder", "RandomLTDBuilder",
    "SpatialInferenceBuilder", "UtilsBuilder",
]  # fmt: skip

_LOCKED: dict[int, torch.Tensor] = {}


class PinHandle:
    """Remembers blocks by their address."""

    def new_cpu_locked_tensor(self, num_elem: int, example: torch.Tensor) -> torch.Tensor:
        block = torch.zeros(num_elem, dtype=example.dtype)
        _LOCKED[block.data_ptr()] = block
        return block

    def free_cpu_locked_tensor(self, tensor: torch.Tensor) -> bool:
        return self.free_cpu_locked_tensor_by_ptr(tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        return _LOCKED.pop(address, None) is not None

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        at = tensor.data_ptr()
        return any(start <= at < start + block.nbytes for start, block in _LOCKED.items())


class PinMemoryBuilder(PlainTorch):
    """Page-locked memory, pretended."""

    NAME = "pin_memory"
    BUILD_VAR = "DS_BUILD_PIN_MEMORY"
    FUNCTIONS: ClassVar[dict[str, Any]] = {"pin_handle": PinHandle}


class UtilsBuilder(PlainTorch):
    """Flattening."""

    NAME = "utils"
    BUILD_VAR = "DS_BUILD_UTILS"
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        "flatten": torch._utils._flatten_dense_tensors,
        "unflatten": torch._utils._unflatten_dense_tensors,
    }
