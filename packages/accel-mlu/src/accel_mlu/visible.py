# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The variables that restrict a process to some MLUs. The runtime reads CN_VISIBLE_DEVICES first.

If a launcher set MLU_VISIBLE_DEVICES only, a CN_VISIBLE_DEVICES from the user's environment would override it.
"""

from __future__ import annotations

from accel_core.vendor import VisibleDevices

_FIRST, _SECOND = "CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"
#: Numbers or UUIDs. Later releases read CUDA's variable last.
VISIBLE = VisibleDevices(
    (_FIRST, _SECOND, "CUDA_VISIBLE_DEVICES"),
    name=r"[0-9a-fA-F]{8}-",
    exclusive=True,
    container="CAMBRICON_VISIBLE_DEVICES",
)


def variables() -> list[str]:
    """Return the variables for a rank, the one that decides here first: DeepSpeed's runner reads and unsets it."""
    return list(dict.fromkeys((VISIBLE.decides() or _SECOND, _FIRST, _SECOND)))
