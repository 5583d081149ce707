# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator interface, composed of one class per subject.

Names and signatures are those of DeepSpeed 0.18 and 0.19, so that code written for
`deepspeed.accelerator.get_accelerator()` runs unchanged. Where upstream's backends differ from each other,
the docstring of the method defines the behaviour.
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
    """Interface of one device type, for DeepSpeed and accelerator-agnostic models.

    Derive from `accel_core.TorchDeviceAccelerator`, which implements it for any device type with a module
    `torch.<type>`, and override what differs::

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
