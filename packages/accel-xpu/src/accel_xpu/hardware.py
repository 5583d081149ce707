# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs among the device files, and the variable that hides some of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from accel_core.vendor import device_files, system_root

VISIBLE = "ZE_AFFINITY_MASK"
#: Render nodes, and the one device file that Windows offers to its Linux subsystem.
_NODES = ("dev/dri/renderD*", "dev/dxg")
_INTEL = "0x8086"


class Presence(NamedTuple):
    """Whether an Intel GPU is here, None when that cannot be told; and the sentence why."""

    present: bool | None
    reason: str


def presence() -> Presence:
    """Look at the render nodes, and at /sys for whose they are: every vendor's GPUs have them."""
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
    """The PCI vendor of a render node as /sys has it; empty where it does not say."""
    try:
        return (system_root() / "sys/class/drm" / node.name / "device/vendor").read_text().strip()
    except OSError:
        return ""


def mask() -> str:
    """The mask in the words of a reason; empty where none is set."""
    value = os.environ.get(VISIBLE)
    return f" with {VISIBLE}={value}" if value else ""
