# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator: the CPU under another name."""

from accel_core.device import TorchDeviceAccelerator
from odd_vendor.op_builder import TABLE


class Odd(TorchDeviceAccelerator):
    def __init__(self):
        super().__init__("cpu", collectives="gloo", ops=TABLE)


Odd.__abstractmethods__ = frozenset()
