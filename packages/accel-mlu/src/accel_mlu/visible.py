# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two variables show a process some MLUs only, and the runtime reads CN_VISIBLE_DEVICES first.

A launcher that writes MLU_VISIBLE_DEVICES alone is overruled by a CN_VISIBLE_DEVICES that was left behind.
"""

from __future__ import annotations

import os

_FIRST, _SECOND = "CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"


def variables() -> list[str]:
    """Both, the one that decides in this process at the front: DeepSpeed's runner reads and takes back that one."""
    return [_FIRST, _SECOND] if _FIRST in os.environ else [_SECOND, _FIRST]


def overruled() -> str:
    """Which of the two is set for nothing; empty when they agree or one is unset."""
    first, second = os.environ.get(_FIRST), os.environ.get(_SECOND)
    if first is None or second is None or first == second:
        return ""
    return f"{_FIRST}={first} overrules {_SECOND}={second}"
