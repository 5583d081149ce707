# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device files of Intel GPUs, and the variable that restricts a process to some of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from accel_core.vendor import device_files, system_root

VISIBLE = "ZE_AFFINITY_MASK"
#: Render nodes, and the device file of the Windows Subsystem for Linux.
_NODES = ("dev/dri/renderD*", "dev/dxg")
_INTEL = "0x8086"


class Presence(NamedTuple):
    """Whether there is an Intel GPU, None if unknown, and the reason."""

    present: bool | None
    reason: str


def presence() -> Presence:
    """Look for render nodes whose PCI vendor in /sys is Intel; GPUs of all vendors have render nodes."""
    if not sys.platform.startswith("linux"):
        return Presence(None, f"there are no device files to look for on {sys.platform}")
    nodes = device_files(_NODES)
    if not nodes:
        return Presence(False, f"no device file {' or '.join(_NODES)}")
    ours = [node for node in nodes if _maker(node) in (_INTEL, "")]
    if not ours:
        return Presence(False, f"no render node of Intel's: {nodes[0]} is a GPU of vendor {_maker(nodes[0])}")
    return Presence(True, f"{ours[0]} exists")


def _maker(node: Path) -> str:
    """Return the PCI vendor of a render node from /sys; empty if unknown."""
    try:
        return (system_root() / "sys/class/drm" / node.name / "device/vendor").read_text().strip()
    except OSError:
        return ""


def mask() -> str:
    """Return the mask as part of a reason; empty if it is not set."""
    value = os.environ.get(VISIBLE)
    return f" with {VISIBLE}={value}" if value else ""
