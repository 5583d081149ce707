# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A vendor package with ops that work, fail, crash and wait."""

import os

from accel_core.vendor import Confirmation, Evidence, Vendor

VENDOR = Vendor(
    key="odd",
    interface=2,
    accelerator="odd_vendor.accelerator:Odd",
    probe="odd_vendor",
    priority=1,
    distribution="accel-odd",
    requires="odd",
)


def evidence():
    return Evidence(True, None, "always here")


def confirm():
    if os.environ.get("ODD_CRASH"):
        os.abort()
    return Confirmation(1, "one device")
