# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A record that takes its place from the cascade's table, as those of vendor packages did."""

from __future__ import annotations

from accel_core import known
from accel_core.vendor import Vendor

VENDOR = Vendor(
    key="toy1",
    accelerator="accel_toy_interface1.accelerator:Toy1_Accelerator",
    probe="accel_toy_interface1.probe",
    priority=known.priority("npu") + 50,
    distribution="accel-toy-interface1",
    requires="the toy driver",
)
