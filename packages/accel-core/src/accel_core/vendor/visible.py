# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variables that restrict a process to some devices, as a vendor's runtime reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class VisibleDevices:
    """How a runtime reads a list such as `0,2`. An entry other than a device ends it, a repeated one counts once.

    variables: the first that is set decides.
    number:    pattern of an entry with a number, which is its first group; a group `rest` ends the list.
    name:      pattern of the name of a device; empty: the runtime takes numbers only.
    skips:     a number that is not a device is passed over, and any other entry hides all.
    exclusive: a repeated entry hides all.
    ascending: another order hides all.
    unset_if_empty: an empty variable counts as not set; else it hides all.
    later:     variables that choose among the devices that are left, by numbers among these.
    container: the variable of the vendor's container runtime, which no process reads.
    """

    variables: tuple[str, ...]
    number: str = r"\s*(\d+)\s*$"
    name: str = ""
    skips: bool = False
    exclusive: bool = False
    ascending: bool = False
    unset_if_empty: bool = False
    later: tuple[str, ...] = ()
    container: str = ""

    def decides(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the variable that decides; empty if none is set."""
        for name in self.variables:
            if environ.get(name) or (name in environ and not self.unset_if_empty):
                return name
        return ""

    def read(
        self, value: str, present: int | None = None, names: Mapping[str, int] | None = None
    ) -> dict[str, int | str]:
        """Return the entries that are devices, in order, each with its number or name.

        present: number of devices of the machine; None: any number is one. names: numbers of names; None: any name
        is a device.
        """
        found: dict[str, int | str] = {}
        for entry in _entries(value):
            device, last = self._device(entry, present, names)
            if device is None and self.skips and re.match(self.number, entry):
                continue
            if device is None:
                if self.skips:
                    return {}
                break
            if device not in found.values():
                found[entry] = device
            elif self.exclusive:
                return {}
            if last:
                break
        return found if self._ascends(found) else {}

    def _ascends(self, found: Mapping[str, int | str]) -> bool:
        numbers = [device for device in found.values() if isinstance(device, int)]
        return not self.ascending or numbers == sorted(numbers)

    def _device(
        self, entry: str, present: int | None, names: Mapping[str, int] | None
    ) -> tuple[int | str | None, bool]:
        """Return the number or name in an entry, None if it is not a device, and whether it ends the list."""
        if match := re.match(self.number, entry):
            number = int(match[1])
            valid = number >= 0 and (present is None or number < present)
            return number if valid else None, bool(match.groupdict().get("rest"))
        name = entry.strip()
        if not self.name or not re.match(self.name, name):
            return None, False
        if names is None:
            return name, False
        numbers = [number for known, number in names.items() if known.startswith(name)]
        return numbers[0] if len(numbers) == 1 else None, False

    def used(self, value: str, count: int) -> list[str]:
        """Return the entries whose devices a runtime uses that counts so many of them; all if it counts more."""
        numbers = (re.match(self.number, entry) for entry in _entries(value))
        presents = {int(match[1]) for match in numbers if match} | {0}
        full = list(self.read(value))
        for present in sorted(presents):
            entries = list(self.read(value, present))
            if len(entries) == count:
                return [entry.strip() for entry in entries]
        return [entry.strip() for entry in full[:count]]

    def remark(self, count: int, environ: Mapping[str, str] = os.environ) -> str:
        """Return `remarks` as the end of a reason."""
        return "".join(f"; {part}" for part in self.remarks(count, environ))

    def remarks(self, count: int, environ: Mapping[str, str] = os.environ) -> list[str]:
        """Return what of the variables a runtime does not use that counts so many devices; empty if it uses all."""
        name = self.decides(environ)
        parts = [
            f"{name}={environ[name]} overrules {other}={environ[other]}"
            for other in self.variables
            if name and other in environ and environ[other] != environ[name]
        ]
        later = [f"{other}={environ[other]} chooses among them" for other in self.later if environ.get(other)]
        if name and not environ[name] and not count:
            parts.append(f"{name} is empty, which hides all devices")
        elif name and environ[name] and not later:
            parts += self._ignored(name, environ[name], count)
        elif self.container and (text := environ.get(self.container, "")) and not name:
            listed = re.fullmatch(r"\d+(,\d+)*", text)
            if listed and len(text.split(",")) != count:
                parts.append(f"{self.container}={text} is for the container runtime, no process reads it")
        return parts + later

    def _ignored(self, name: str, value: str, count: int) -> list[str]:
        entries = [entry.strip() for entry in _entries(value)]
        used = self.used(value, count)
        ignored = [entry for entry in dict.fromkeys(entries) if entry not in used]
        repeated = len(set(entries)) < len(entries)
        if not ignored and not repeated:
            return []
        why = ""
        if not used and repeated and self.exclusive:
            why = ": a repeated entry hides all devices"
        elif not used and self.ascending and not self._ascends(replace(self, ascending=False).read(value)):
            why = ": ids that do not ascend hide all devices"
        what = ", ".join(ignored) or "repeated entries"
        return [f"the runtime ignores {what} of {name}={value}{why}"]


def _entries(value: str) -> list[str]:
    entries = value.split(",")
    return entries if entries[-1] else entries[:-1]
