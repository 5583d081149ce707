# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Base classes of accelerators, for any device type with a module `torch.<type>`."""

from accel_core.device.graphs import Graphs
from accel_core.device.module import DeviceModule, GraphModule
from accel_core.device.no_pinned_memory import NoPinnedMemory
from accel_core.device.no_streams import NoStreams
from accel_core.device.one_device import OneDeviceAccelerator
from accel_core.device.torch_device import TorchDeviceAccelerator

__all__ = [
    "DeviceModule",
    "GraphModule",
    "Graphs",
    "NoPinnedMemory",
    "NoStreams",
    "OneDeviceAccelerator",
    "TorchDeviceAccelerator",
]
