# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Count the devices that are visible to a process, by the vendor's own variable."""

from __future__ import annotations

from collections.abc import Mapping

from accel_testkit.sim.vendors import SimVendor


def count(vendor: SimVendor, present: int, environment: Mapping[str, str]) -> int:
    """Return the number of visible devices; the first of the vendor's variables that is set decides."""
    for variable in vendor.visible:
        if variable in environment:
            return _listed(environment[variable], present, ascending=vendor.ascending)
    return present


def _listed(text: str, present: int, *, ascending: bool) -> int:
    """Count the ids before the first that is no number, does not exist, repeats, or (Ascend) does not ascend."""
    seen: list[int] = []
    for part in text.split(","):
        item = part.strip()
        if not item.isdigit() or int(item) >= present or int(item) in seen:
            break
        if ascending and seen and int(item) <= seen[-1]:
            break
        seen.append(int(item))
    return len(seen)
