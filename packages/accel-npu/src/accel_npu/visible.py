# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ASCEND_RT_VISIBLE_DEVICES: CANN hides all devices if ids do not ascend, and reads no further than a blank."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import VisibleDevices

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"
VISIBLE = VisibleDevices(
    (VARIABLE,),
    number=r"(\d+)(?P<rest>.*)",
    exclusive=True,
    ascending=True,
    container="ASCEND_VISIBLE_DEVICES",
)


def joined(ids: Sequence[int | str]) -> str:
    """Return the value of the variable for these ids; raises InvalidEnvironment unless they are ascending ids."""
    numbers = [int(item) for item in ids if str(item).isdecimal()]
    if len(numbers) != len(ids) or any(first >= second for first, second in itertools.pairwise(numbers)):
        raise InvalidEnvironment(
            f"{VARIABLE} cannot be set for a rank: {', '.join(map(str, ids))}; expected device ids in "
            "ascending order, as the Ascend runtime requires",
            do="list the devices in ascending order in --include, or in the variable itself",
        )
    return ",".join(map(str, numbers))
