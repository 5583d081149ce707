# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for MLUs: torch_mlu's distribution, device files, and torch_mlu's device count."""

from __future__ import annotations

import re

from accel_core.vendor import (
    Confirmation,
    Evidence,
    distribution_version,
    in_range,
    known_device,
    runtime_evidence,
)
from accel_mlu import visible

#: Tested releases of torch_mlu.
TORCH_MLU = ">=1.22,<2"
DEVICE = known_device("mlu")
_BUILT_FOR = re.compile(r"\+torch(\d+\.\d+)")


def evidence() -> Evidence:
    """Check distribution, version range, the torch it was built for and /dev/cambricon_dev*; imports nothing."""
    wrong = _other_torch()
    return (
        Evidence(False, None, wrong) if wrong else runtime_evidence(DEVICE.runtime, TORCH_MLU, DEVICE.files)
    )


def _other_torch() -> str:
    # The version of Cambricon's wheels names their torch, as 1.29.2+torch2.7.1. With another torch, the import would
    # fail with an undefined symbol.
    version, torch = distribution_version("torch_mlu") or "", distribution_version("torch") or ""
    wanted = _BUILT_FOR.search(version)
    if wanted is None or in_range(torch, f"=={wanted[1]}.*"):
        return ""
    return f"torch_mlu {version} is installed, built for torch {wanted[1]}; this is torch {torch}"


def confirm() -> Confirmation:
    """Import torch_mlu and count devices; raises what its import raises (ImportError without Neuware's libraries)."""
    import torch_mlu

    count = int(torch_mlu.mlu.device_count()) if torch_mlu.mlu.is_available() else 0
    return Confirmation(count, f"torch.mlu counts {count}{visible.VISIBLE.remark(count)}")
