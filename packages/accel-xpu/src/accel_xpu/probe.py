# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Intel GPUs with torch.xpu: version and build of torch, device files, and torch's device count."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, distribution_version, in_range, torch_build
from accel_xpu import hardware

#: Before 2.8 torch has no collectives for XPU, and IPEX is needed.
TORCH = ">=2.8"


def evidence() -> Evidence:
    """Check version and build of torch, and Intel's render nodes; imports nothing."""
    version = distribution_version("torch")
    if version is None:
        return Evidence(False, None, "torch is not installed")
    if not in_range(version, TORCH):
        return Evidence(False, None, f"torch {version} is installed, {TORCH} serves XPU by itself")
    presence = hardware.presence()
    if torch_build("xpu") is None:
        return Evidence(False, presence.present, f"torch {version} is built without XPU{presence.seen}")
    return Evidence(True, presence.hardware, f"torch {version} is built with XPU; {presence.reason}")


def confirm() -> Confirmation:
    """Count devices with torch.xpu; opens no device context."""
    return counted("torch.xpu")


def counted(through: str) -> Confirmation:
    """Return the device count of torch.xpu, with a reason that names the variant."""
    import torch

    count = torch.xpu.device_count() if torch.xpu.is_available() else 0
    return Confirmation(count, f"{through} counts {count}{hardware.mask(count)}")
