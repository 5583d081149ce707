# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class, over the base class where it was."""

from __future__ import annotations

import torch
from accel_core.torch_device import TorchDeviceAccelerator

from accel_core.op_builder import OpTable


class Toy1_Accelerator(TorchDeviceAccelerator):
    """Two devices in host memory."""

    def __init__(self) -> None:
        table = OpTable(package="accel_toy_interface1", builders={})
        super().__init__("cpu", collectives="gloo", ops=table, namespace=torch.cpu)

    def device_count(self) -> int:
        return int(self._ns.device_count())
