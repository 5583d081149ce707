# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether Ascend NPUs can be used: torch_npu's distribution and the device files, then its own count."""

from __future__ import annotations

import importlib

from accel_core import known
from accel_core.evidence import device_nodes, distribution_version, in_range
from accel_core.vendor import Confirmation, Evidence
from accel_npu import cann, visible

#: Releases of torch_npu whose names this package uses.
TORCH_NPU = ">=2.1,<2.15"
(_ROW,) = known.rows("npu")


def evidence() -> Evidence:
    """Distribution, version range and /dev/davinci*; imports nothing."""
    version = distribution_version("torch_npu") or distribution_version("torch-npu")
    if version is None:
        return Evidence(False, None, "torch_npu is not installed")
    if not in_range(version, TORCH_NPU):
        return Evidence(False, None, f"torch_npu {version} is installed, {TORCH_NPU} is needed")
    nodes = device_nodes(_ROW.device_nodes)
    found = f"{nodes[0]} exists" if nodes else f"no device file {' or '.join(_ROW.device_nodes)}"
    return Evidence(True, bool(nodes), f"torch_npu {version}; {cann.installed().reason}; {found}")


def confirm() -> Confirmation:
    """Import torch_npu and count; raises what its import raises (ImportError without CANN)."""
    torch_npu = importlib.import_module("torch_npu")
    count = int(torch_npu.npu.device_count()) if torch_npu.npu.is_available() else 0
    wrong = visible.fault()
    reason = f"torch.npu counts {count}" + (f"; {wrong}" if wrong else "")
    return Confirmation(count, reason)
