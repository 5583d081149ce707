# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Biren GPUs: torch_supa's distribution, device files, and torch_supa's device count."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, VisibleDevices, known_device, runtime_evidence

#: Releases whose interface was read.
TORCH_SUPA = ">=1.0,<2"
VISIBLE = VisibleDevices(("SUPA_VISIBLE_DEVICES",))
DEVICE = known_device("supa")
_BUILT_FOR = r"^\d+\.\d+\.\d+\.(\d)(\d\d)\d\d\b"  # 1.0.0.21200: torch 2.12.0


def evidence() -> Evidence:
    """Check distribution, version range, the torch it was built for and /dev/biren/card_*; imports nothing."""
    return runtime_evidence(DEVICE.runtime, TORCH_SUPA, DEVICE.files, built_for=_BUILT_FOR)


def confirm() -> Confirmation:
    """Import torch_supa and count devices; raises what its import raises (ImportError without the SUPA SDK)."""
    import torch_supa

    count = int(torch_supa.supa.device_count()) if torch_supa.supa.is_available() else 0
    return Confirmation(count, f"torch.supa counts {count}{VISIBLE.remark(count)}")
