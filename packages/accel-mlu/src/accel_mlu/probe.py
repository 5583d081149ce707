# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for MLUs: torch_mlu's distribution, device files, and torch_mlu's device count."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, known_device, runtime_evidence
from accel_mlu import visible

#: Tested releases of torch_mlu.
TORCH_MLU = ">=1.22,<2"
DEVICE = known_device("mlu")
#: The version of Cambricon's wheels names their torch: 1.29.2+torch2.7.1. The import would fail with another one.
_BUILT_FOR = r"\+torch(\d+)\.(\d+)"


def evidence() -> Evidence:
    """Check distribution, version range, the torch it was built for and /dev/cambricon_dev*; imports nothing."""
    return runtime_evidence(DEVICE.runtime, TORCH_MLU, DEVICE.files, built_for=_BUILT_FOR)


def confirm() -> Confirmation:
    """Import torch_mlu and count devices; raises what its import raises (ImportError without Neuware's libraries)."""
    import torch_mlu

    count = int(torch_mlu.mlu.device_count()) if torch_mlu.mlu.is_available() else 0
    return Confirmation(count, f"torch.mlu counts {count}{visible.VISIBLE.remark(count)}")
