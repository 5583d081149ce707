# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The pretend driver, in the shape of torch's device modules: devices whose memory is the host's.

TOY_DEVICES is their number: 0 is a machine without a card, -1 a driver that crashes.
"""

from __future__ import annotations

import os

from torch.cpu import Event, Stream, set_device, synchronize  # noqa: F401


def device_count() -> int:
    """Return the number of devices; raise RuntimeError if the driver is broken."""
    count = int(os.environ.get("TOY_DEVICES", "2"))
    if count < 0:
        raise RuntimeError("the toy driver is broken")
    return count


def is_available() -> bool:
    """Return True if there is a device."""
    return device_count() > 0


def current_device() -> int:
    """Return the index of the device in use, which is always the first."""
    return 0
