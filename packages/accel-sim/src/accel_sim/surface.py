# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The names of each real vendor module: `surfaces/<name>.json`, with source and version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from accel_sim import shared


@dataclass(frozen=True)
class Name:
    """One name of a vendor's module.

    kind:        function, class, method, property or attr.
    signature:   as in the real module; empty where no source shows it.
    condition:   when it exists only sometimes.
    unconfirmed: only DeepSpeed is known to use it.
    """

    kind: str
    signature: str = ""
    condition: str = ""
    note: str = ""
    unconfirmed: bool = False


@dataclass(frozen=True)
class Surface:
    """The names of one vendor's module, and where they were read."""

    vendor: str
    module: str
    source: str
    version: str
    names: dict[str, Name]

    def children(self, prefix: str) -> dict[str, Name]:
        """Return the names directly below a prefix, by their last part."""
        start = prefix + "."
        found: dict[str, Name] = {}
        for full, name in self.names.items():
            if not full.startswith(start):
                continue
            first, _, deeper = full[len(start) :].partition(".")
            if not deeper:
                found[first] = name
            else:
                found.setdefault(first, Name("attr"))
        return found


@cache
def load(name: str) -> Surface:
    """Return the surface of a vendor. Raises FileNotFoundError where there is none."""
    data = json.loads((shared.folder("surfaces") / f"{name}.json").read_text(encoding="utf-8"))
    names = {full: Name(**entry) for full, entry in data.pop("names").items()}
    return Surface(names=names, **data)


def available() -> list[str]:
    """Return the names of all surfaces."""
    return sorted(path.stem for path in shared.folder("surfaces").glob("*.json"))
