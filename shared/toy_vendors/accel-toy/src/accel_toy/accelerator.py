# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The toy as an accelerator: only the differences."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import override

from accel_core.device import DeviceModule, TorchDeviceAccelerator
from accel_toy import driver
from accel_toy.op_builder import TABLE


class Toy_Accelerator(TorchDeviceAccelerator):
    """Two devices in host memory: to torch, each of their tensors is a CPU tensor."""

    def __init__(self) -> None:
        # The driver has no device properties; its mem_get_info has the total, too.
        module = cast(DeviceModule, driver)
        super().__init__("cpu", collectives="gloo", ops=TABLE, device_module=module)

    @override
    def is_synchronized_device(self) -> bool:
        return True

    @override
    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device("cpu")

    @override
    def visible_devices_envs(self) -> list[str]:
        return ["TOY_VISIBLE_DEVICES"]
