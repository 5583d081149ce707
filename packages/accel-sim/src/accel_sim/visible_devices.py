# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which of the machine's devices are visible to a process, by the vendor's own variable."""

from __future__ import annotations

from collections.abc import Mapping

from accel_sim.vendors import SimVendor


def listed(vendor: SimVendor, present: int, environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the machine's numbers of the visible devices; the first of the vendor's variables that is set decides."""
    for variable in vendor.visible:
        if variable in environment:
            found = _read(environment[variable], present, vendor)
            return tuple(sorted(found) if vendor.own_order else found)
    return tuple(range(present))


def uuid(number: int) -> str:
    """Return the name of a device of the machine, where the vendor's variable takes names."""
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def _read(text: str, present: int, vendor: SimVendor) -> list[int]:
    """Return the ids before the first that is unknown, repeats, or (Ascend) does not ascend."""
    names = {uuid(number): number for number in range(present)} if vendor.uuids else {}
    seen: list[int] = []
    for part in text.split(","):
        item = part.strip()
        number = int(item) if item.isdigit() else names.get(item, present)
        if number >= present or number in seen or (vendor.ascending and seen and number <= seen[-1]):
            break
        seen.append(number)
    return seen
