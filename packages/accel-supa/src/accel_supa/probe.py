# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for Biren GPUs: torch_supa's distribution, device files, and torch_supa's device count."""

from __future__ import annotations

import re

from accel_core.vendor import (
    Confirmation,
    Evidence,
    VisibleDevices,
    distribution_version,
    in_range,
    known_device,
    runtime_evidence,
)

#: Releases whose interface was read.
TORCH_SUPA = ">=1.0,<2"
VISIBLE = VisibleDevices(("SUPA_VISIBLE_DEVICES",))
DEVICE = known_device("supa")
_BUILT_FOR = re.compile(r"^\d+\.\d+\.\d+\.(\d)(\d\d)\d\d\b")  # 1.0.0.21200: torch 2.12.0


def evidence() -> Evidence:
    """Check distribution, version range, the torch it was built for and /dev/biren/card_*; imports nothing."""
    version, torch = distribution_version("torch_supa") or "", distribution_version("torch") or ""
    built = _BUILT_FOR.match(version)
    wanted = f"{built[1]}.{int(built[2])}" if built else ""
    if wanted and not in_range(torch, f"=={wanted}.*"):
        return Evidence(
            False, None, f"torch_supa {version} is built for torch {wanted}; this is torch {torch}"
        )
    return runtime_evidence(DEVICE.runtime, TORCH_SUPA, DEVICE.files)


def confirm() -> Confirmation:
    """Import torch_supa and count devices; raises what its import raises (ImportError without the SUPA SDK)."""
    import torch_supa

    count = int(torch_supa.supa.device_count()) if torch_supa.supa.is_available() else 0
    return Confirmation(count, f"torch.supa counts {count}{VISIBLE.remark(count)}")
