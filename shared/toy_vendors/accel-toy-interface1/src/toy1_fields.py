# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A record that imports what is still there, and has a field that is gone."""

from __future__ import annotations

from accel_core.vendor import Vendor

VENDOR = Vendor(
    key="toy1fields",
    accelerator="accel_toy_interface1.accelerator:Toy1_Accelerator",
    probe="accel_toy_interface1.probe",
    priority=751,
    distribution="accel-toy-interface1",
    requires="the toy driver",
    road="native",
)
