# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ascend NPU: where it differs from any other device of torch."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
import torch_npu  # noqa: F401  (registers torch.npu)

from accel_core.device import TorchDeviceAccelerator
from accel_npu import visible
from accel_npu.op_builder import TABLE
from accel_npu.traits import TRAITS

_TYPES = {
    torch.bfloat16: "BFloat16Tensor",
    torch.uint8: "ByteTensor",
    torch.float64: "DoubleTensor",
    torch.float32: "FloatTensor",
    torch.float16: "HalfTensor",
    torch.int32: "IntTensor",
    torch.int64: "LongTensor",
}
_EXPORTED = ["ASCEND", "HCCL", "TORCH_HCCL", "PYTORCH_NPU", "TASK_QUEUE", "LD_LIBRARY", "PATH"]


class NPU_Accelerator(TorchDeviceAccelerator):
    """Huawei Ascend through torch.npu, hccl between ranks."""

    def __init__(self) -> None:
        super().__init__("npu", collectives="hccl", ops=TABLE, traits=TRAITS)

    def tensor_constructor(self, dtype: torch.dtype) -> Any:
        return getattr(self.device_module, _TYPES[dtype])

    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    def visible_devices_envs(self) -> list[str]:
        return [visible.VARIABLE]

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        current_env[visible.VARIABLE] = visible.joined(local_accelerator_ids)
