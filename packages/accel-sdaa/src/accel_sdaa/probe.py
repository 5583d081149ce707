# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for SDAA devices: torch_sdaa's distribution, device files, and torch_sdaa's device count."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, VisibleDevices, known_device, runtime_evidence

#: Tested releases of torch_sdaa; earlier ones are for torch 2.4.
TORCH_SDAA = ">=3.0,<4"
#: Its documents give numbers only.
VISIBLE = VisibleDevices(("SDAA_VISIBLE_DEVICES",))
DEVICE = known_device("sdaa")


def evidence() -> Evidence:
    """Check distribution, version range and /dev/tcaicard* (one per card); imports nothing."""
    return runtime_evidence(DEVICE.runtime, TORCH_SDAA, DEVICE.files)


def confirm() -> Confirmation:
    """Import torch_sdaa and count devices; raises what its import raises (ImportError without TecoToolKit)."""
    import torch_sdaa

    count = int(torch_sdaa.sdaa.device_count()) if torch_sdaa.sdaa.is_available() else 0
    return Confirmation(count, f"torch.sdaa counts {count}{VISIBLE.remark(count)}")
