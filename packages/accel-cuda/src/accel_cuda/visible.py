# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES as the CUDA runtime reads it: ordinals, UUIDs of GPUs and of MIG instances."""

from __future__ import annotations

import os

VARIABLE = "CUDA_VISIBLE_DEVICES"


def entry(index: int) -> int | str | None:
    """Return the driver's ordinal or the UUID of device `index`; None if it is not visible."""
    value = os.environ.get(VARIABLE)
    if value is None:
        return index
    listed = entries(value)
    return listed[index] if index < len(listed) else None


def entries(value: str) -> list[int | str]:
    """Return the visible devices: the entries before the first invalid one; none if an entry occurs twice."""
    listed: list[int | str] = []
    for part in (item.strip() for item in value.split(",")):
        if part.startswith(("GPU-", "MIG-")):
            listed.append(part)
        elif part.isdecimal():
            listed.append(int(part))
        else:
            break
    return listed if len(set(listed)) == len(listed) else []
