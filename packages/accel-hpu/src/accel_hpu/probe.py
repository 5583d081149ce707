# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Gaudi: Habana's PyTorch plugin, device files, and the plugin's device count."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence, VisibleDevices, known_device, runtime_evidence

DEVICE = known_device("hpu")
#: Tested releases of the plugin. 1.22 is for torch 2.7, 1.23 for torch 2.9.
RELEASES = ">=1.19,<2"
#: By the module ids of the node. Launchers leave it alone.
MODULES = VisibleDevices(("HABANA_VISIBLE_MODULES",), container="HABANA_VISIBLE_DEVICES")


def evidence() -> Evidence:
    """Check distribution, version range and /dev/accel/accel* (older drivers: /dev/hl*); imports nothing."""
    return runtime_evidence(
        DEVICE.runtime,
        RELEASES,
        DEVICE.files,
        distribution=DEVICE.runtime_distribution,
        pci_vendor=DEVICE.pci_vendor,
    )


def confirm() -> Confirmation:
    """Import Habana's runtime and count devices; raises what its import raises, which is rarely an ImportError."""
    from habana_frameworks.torch import hpu

    count = int(hpu.device_count()) if hpu.is_available() else 0
    return Confirmation(count, f"torch.hpu counts {count}{MODULES.remark(count)}")
