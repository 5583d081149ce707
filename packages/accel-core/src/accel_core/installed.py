# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The evidence for a device whose runtime is a distribution of its own: its version, then device files."""

from __future__ import annotations

from accel_core.evidence import device_nodes, distribution_version, in_range
from accel_core.known import Known
from accel_core.vendor import Evidence


def evidence_of(row: Known, specifier: str, *notes: str, distribution: str = "") -> Evidence:
    """What a probe's `evidence()` answers; imports nothing.

    row:          the vendor's row of `accel_core.known`: name of the runtime, patterns of device files.
    specifier:    releases of the runtime whose names the vendor's package uses.
    notes:        what else the vendor sees without imports; part of the reason.
    distribution: what the runtime is installed as, where that is not its module's name.
    """
    name = distribution or row.runtime
    version = distribution_version(name)
    if version is None:
        return Evidence(False, None, f"{name} is not installed")
    if not in_range(version, specifier):
        return Evidence(False, None, f"{name} {version} is installed, {specifier} is needed")
    nodes = device_nodes(row.device_nodes)
    found = f"{nodes[0]} exists" if nodes else f"no device file {' or '.join(row.device_nodes)}"
    return Evidence(True, bool(nodes), "; ".join((f"{name} {version}", *notes, found)))
