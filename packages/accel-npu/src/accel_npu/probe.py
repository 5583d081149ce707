# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Ascend NPUs: torch_npu's distribution, device files, and torch_npu's device count."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, known_device, runtime_evidence
from accel_npu import cann, visible

#: Tested releases of torch_npu.
TORCH_NPU = ">=2.8,<2.15"
DEVICE = known_device("npu")


def evidence() -> Evidence:
    """Check distribution, version range, CANN and /dev/davinci*; imports nothing."""
    return runtime_evidence(DEVICE.runtime, TORCH_NPU, DEVICE.files, cann.cann_status())


def confirm() -> Confirmation:
    """Import torch_npu and count devices; raises what its import raises (ImportError without CANN)."""
    import torch_npu

    count = int(torch_npu.npu.device_count()) if torch_npu.npu.is_available() else 0
    return Confirmation(count, f"torch.npu counts {count}{visible.VISIBLE.remark(count)}")
