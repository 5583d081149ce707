# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for an Apple GPU: the release of torch, Metal, and the device count of torch."""

from __future__ import annotations

import importlib
import sys

from accel_core.vendor import Confirmation, Evidence, device_files, distribution_version, in_range

#: Releases of torch that accel works with.
TORCH = ">=2.8"
METAL = "System/Library/Frameworks/Metal.framework"


def evidence() -> Evidence:
    """Check the release of torch and the system; imports nothing. A recorded Mac is known by its Metal framework."""
    version = distribution_version("torch")
    if version is None:
        return Evidence(False, None, "torch is not installed")
    if not in_range(version, TORCH):
        return Evidence(False, None, f"torch {version} is installed, {TORCH} is needed")
    if sys.platform != "darwin" and not device_files([METAL]):
        return Evidence(False, False, f"/{METAL} is not there: this is not macOS")
    return Evidence(True, None, f"torch {version} on macOS; only torch knows whether there is a GPU")


def confirm() -> Confirmation:
    """Import torch and query its mps module; 0 devices in a virtual machine without a GPU."""
    found = bool(importlib.import_module("torch.mps").is_available())
    return Confirmation(int(found), f"torch.mps.is_available() is {found}")
