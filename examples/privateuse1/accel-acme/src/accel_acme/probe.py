# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The accel-acme authors
# SPDX-License-Identifier: Apache-2.0
"""Probe for the device: its runtime's release, then its count."""

from __future__ import annotations

import importlib

from accel_core.vendor import Confirmation, Evidence, distribution_version, in_range

#: The distribution that brings torch_acme, and its releases whose names this package uses.
DISTRIBUTION, RELEASES = "torch_acme", ">=0.1,<1"


def evidence() -> Evidence:
    """Distribution and version range; imports nothing."""
    version = distribution_version(DISTRIBUTION)
    if version is None:
        return Evidence(False, None, f"{DISTRIBUTION} is not installed")
    if not in_range(version, RELEASES):
        found = f"{DISTRIBUTION} {version} is installed"
        return Evidence(False, None, f"{found}, {RELEASES} is needed")
    # The pretended devices have no device files: None leaves it to confirm().
    return Evidence(True, None, f"{DISTRIBUTION} {version}")


def confirm() -> Confirmation:
    """Import the runtime and count; raises what its import raises."""
    importlib.import_module("torch_acme")
    device = importlib.import_module("torch").acme
    count = int(device.device_count()) if device.is_available() else 0
    return Confirmation(count, f"torch.acme counts {count}")
