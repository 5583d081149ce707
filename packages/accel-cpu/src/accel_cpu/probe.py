# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for the CPU, which is present if torch is installed."""

from __future__ import annotations

from accel_core.errors import AccelError, in_short
from accel_core.vendor import Confirmation, Evidence, launched, module_exists, usable_nodes
from accel_cpu import backends


def evidence() -> Evidence:
    """Return whether torch is installed; imports nothing."""
    if module_exists("torch"):
        return Evidence(runtime=True, hardware=True, reason="torch is installed, and runs on every CPU")
    return Evidence(runtime=False, hardware=True, reason="torch is not installed")


def confirm() -> Confirmation:
    """Count the ranks that a launcher started here, else NUMA nodes; raises ValueError for invalid values."""
    try:
        collectives = "collectives: {} ({})".format(*backends.choose())
    except AccelError as error:  # said again where a backend is needed
        collectives = in_short(error)
    ranks = launched().local_size
    if ranks:
        return Confirmation(ranks, f"the launcher started {ranks} ranks on this machine; {collectives}")
    nodes = usable_nodes()
    cpus = sum(len(node.cpus) for node in nodes)
    counted = f"NUMA nodes with usable CPUs: {len(nodes)} ({cpus} CPUs)"
    return Confirmation(len(nodes), f"{counted}; {collectives}")
