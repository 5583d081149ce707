# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ascend NPU: differences from other torch devices."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any

import torch
import torch_npu
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_npu import visible
from accel_npu.op_builder import TABLE
from accel_npu.traits import TRAITS

_EXPORTED = ["ASCEND", "HCCL", "TORCH_HCCL", "PYTORCH_NPU", "TASK_QUEUE", "LD_LIBRARY", "PATH"]


class NPU_Accelerator(TorchDeviceAccelerator):
    """Huawei Ascend, with torch.npu and hccl."""

    def __init__(self) -> None:
        super().__init__("npu", collectives="hccl", ops=TABLE, traits=TRAITS, device_module=torch_npu.npu)

    @override
    def tensor_constructor(self, dtype: torch.dtype) -> Any:
        return _constructors()[dtype]

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return [visible.VARIABLE]

    @override
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        current_env[visible.VARIABLE] = visible.joined(local_accelerator_ids)


@cache
def _constructors() -> dict[torch.dtype, Any]:
    # Some releases of torch_npu bind them from C++ after its import.
    return {
        torch.bfloat16: torch_npu.npu.BFloat16Tensor,
        torch.uint8: torch_npu.npu.ByteTensor,
        torch.float64: torch_npu.npu.DoubleTensor,
        torch.float32: torch_npu.npu.FloatTensor,
        torch.float16: torch_npu.npu.HalfTensor,
        torch.int32: torch_npu.npu.IntTensor,
        torch.int64: torch_npu.npu.LongTensor,
    }
