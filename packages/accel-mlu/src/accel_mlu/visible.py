# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The two variables that restrict a process to some MLUs. The runtime reads CN_VISIBLE_DEVICES first.

If a launcher set MLU_VISIBLE_DEVICES only, a CN_VISIBLE_DEVICES from the user's environment would override it.
"""

from __future__ import annotations

import os

_FIRST, _SECOND = "CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"


def variables() -> list[str]:
    """Return both variables, the effective one first: DeepSpeed's runner reads and unsets the first."""
    return [_FIRST, _SECOND] if _FIRST in os.environ else [_SECOND, _FIRST]


def overruled() -> str:
    """Return a sentence if one variable overrides the other; empty if they agree or one is unset."""
    first, second = os.environ.get(_FIRST), os.environ.get(_SECOND)
    if first is None or second is None or first == second:
        return ""
    return f"{_FIRST}={first} overrules {_SECOND}={second}"
