# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator interface, composed of one class per concern.

Names and call shapes are those of DeepSpeed 0.18 and 0.19: code written for
`deepspeed.accelerator.get_accelerator()` runs unchanged. Where upstream's backends disagree with each
other there is one contract here, and it stands in the methods' docstrings.
"""

from __future__ import annotations

from accel_core.interface.device import DeviceInterface
from accel_core.interface.dtypes import DtypeInterface
from accel_core.interface.graphs import GraphInterface
from accel_core.interface.launch import LaunchInterface
from accel_core.interface.memory import MemoryInterface
from accel_core.interface.ops import OpInterface
from accel_core.interface.pinned import PinnedMemoryInterface
from accel_core.interface.random import RandomInterface
from accel_core.interface.streams import StreamInterface
from accel_core.interface.tensors import TensorInterface

__all__ = ["DeepSpeedAccelerator"]


class DeepSpeedAccelerator(
    DeviceInterface,
    RandomInterface,
    StreamInterface,
    MemoryInterface,
    DtypeInterface,
    GraphInterface,
    TensorInterface,
    PinnedMemoryInterface,
    OpInterface,
    LaunchInterface,
):
    """One kind of device, as DeepSpeed and accelerator-agnostic models see it.

    Derive from `accel_core.TorchDeviceAccelerator`, which answers all of this for anything that offers
    `torch.<type>`, and write the differences::

        class NPU_Accelerator(TorchDeviceAccelerator):
            def __init__(self) -> None:
                import torch_npu  # registers torch.npu
                super().__init__("npu", collectives="hccl", ops=TABLE, traits=TRAITS)

            def visible_devices_envs(self) -> list[str]:
                return ["ASCEND_RT_VISIBLE_DEVICES"]
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._communication_backend_name: str | None = None
        self._compile_backend: str | None = None
