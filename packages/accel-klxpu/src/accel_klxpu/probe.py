# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Kunlunxin XPUs: torch_xmlir's distribution, device files, and the count of torch.cuda, which it serves."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, VisibleDevices, known_device, runtime_evidence

#: No public source has the releases of torch_xmlir.
TORCH_XMLIR = ">=0"
#: The runtime stands under CUDA's, whose variable chooses the devices.
VISIBLE = VisibleDevices(("CUDA_VISIBLE_DEVICES",))
DEVICE = known_device("klxpu")


def evidence() -> Evidence:
    """Check distribution and /dev/xpu* (one per device); imports nothing."""
    return runtime_evidence(DEVICE.runtime, TORCH_XMLIR, DEVICE.files)


def confirm() -> Confirmation:
    """Import torch_xmlir, before torch.cuda is used, and count; raises what its import raises."""
    import torch
    import torch_xmlir  # noqa: F401

    count = int(torch.cuda.device_count())  # is_available() would open the driver, which a fork breaks
    return Confirmation(count, f"torch.cuda, which torch_xmlir serves, counts {count}{VISIBLE.remark(count)}")
