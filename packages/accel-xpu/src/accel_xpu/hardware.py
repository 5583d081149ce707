# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device files of Intel GPUs, and the variable that restricts a process to some of them."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from accel_core.vendor import VisibleDevices, found_devices, known_device

VISIBLE = "ZE_AFFINITY_MASK"
#: Devices keep the machine's order. SYCL's selector counts among those that the mask leaves.
AFFINITY = VisibleDevices(
    (VISIBLE,),
    number=r"\s*([+-]?\d+)(?![\d.])",
    name=r"\d+(\.\d+)+$",
    skips=True,
    unset_if_empty=True,
    later=("ONEAPI_DEVICE_SELECTOR",),
)
DEVICE = known_device("xpu")


class Presence(NamedTuple):
    """True if a device file of an Intel GPU was found, None where there are no such files, and the reason."""

    present: bool | None
    reason: str

    @property
    def hardware(self) -> bool | None:
        """True or None, for a runtime that can count: a missing file proves nothing."""
        return self.present or None

    @property
    def seen(self) -> str:
        """The end of a reason that names the file that was found; empty without one."""
        return f"; {self.reason}" if self.present else ""


def presence() -> Presence:
    """Look for render nodes whose PCI vendor in /sys is Intel; GPUs of all vendors have render nodes."""
    if not sys.platform.startswith("linux"):
        return Presence(None, f"there are no device files to look for on {sys.platform}")
    return Presence(*found_devices(DEVICE.files, DEVICE.pci_vendor))


def mask(count: int) -> str:
    """Return the mask and what of it is not used, as the end of a reason; empty if it is not set."""
    value = os.environ.get(VISIBLE)
    return (f" with {VISIBLE}={value}" if value else "") + AFFINITY.remark(count)
