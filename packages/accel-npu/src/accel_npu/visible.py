# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ASCEND_RT_VISIBLE_DEVICES: torch_npu silently ignores ids that are not in ascending order."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from accel_core.errors import InvalidEnvironment

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"


def fault() -> str:
    """Return what is wrong with the value of the variable; empty if nothing is."""
    value = os.environ.get(VARIABLE)
    if not value:
        return ""
    ids = value.split(",")
    if not all(item.strip().isdecimal() for item in ids):
        return f"{VARIABLE}={value} has something other than device ids and commas"
    return "" if _ascending([int(item) for item in ids]) else f"the ids in {VARIABLE}={value} do not ascend"


def joined(ids: Sequence[int | str]) -> str:
    """Return the value of the variable for these ids; raises InvalidEnvironment unless they are ascending ids."""
    numbers = [int(item) for item in ids if str(item).isdecimal()]
    if len(numbers) != len(ids) or not _ascending(numbers):
        raise InvalidEnvironment(
            what=f"{VARIABLE} cannot be set for a rank",
            found=", ".join(map(str, ids)),
            expected="device ids in ascending order, as the Ascend runtime requires",
            do="list the devices in ascending order in --include, or in the variable itself",
        )
    return ",".join(map(str, numbers))


def _ascending(numbers: Sequence[int]) -> bool:
    return all(first < second for first, second in itertools.pairwise(numbers))
