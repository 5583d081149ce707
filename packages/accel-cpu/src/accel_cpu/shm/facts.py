# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rank says of its process, so that all ranks can tell whether they can share memory.

The only place where what another rank wrote is read: whoever has a `Facts` has values of the right types, in range.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from accel_cpu.shm import library

#: The most that Linux can be set to: PID_MAX_LIMIT, descriptors (nr_open) and CPUs (NR_CPUS).
_MOST_PID, _MOST_FD, _MOST_CPUS = 1 << 22, 1 << 30, 8192
_MOST_USER, _MOST_INODE = (1 << 32) - 1, (1 << 64) - 1
_LONGEST = 1000


@dataclass(frozen=True)
class Facts:
    """problem: why this process cannot share memory; empty: it can. fd, nonce: of the segment, which rank 0 has."""

    pid: int
    problem: str = ""
    host: str = ""
    processes: int = 0
    user: int = 0
    cpus: tuple[int, ...] = ()
    fd: int = -1
    nonce: bytes = bytes(library.NONCE)

    def to_text(self) -> str:
        """Return the facts as `from_text` reads them."""
        values = dataclasses.asdict(self)
        return json.dumps({**values, "nonce": self.nonce.hex(), "problem": self.problem[:_LONGEST]})

    @classmethod
    def from_text(cls, text: str) -> Facts:
        """Return the facts of another rank; raises ValueError for anything that `to_text` cannot have written."""
        try:
            given = json.loads(text)
        except RecursionError as error:
            raise ValueError("too deep") from error
        names = {field.name for field in dataclasses.fields(cls)}
        if type(given) is not dict or given.keys() != names:
            raise ValueError("not the facts of a rank")
        for name, least, most in (
            ("pid", 1, _MOST_PID),
            ("processes", 0, _MOST_INODE),
            ("user", 0, _MOST_USER),
            ("fd", -1, _MOST_FD),
        ):
            _check(_in_range(given[name], least, most), name)
        for name in ("problem", "host", "nonce"):
            _check(type(given[name]) is str and len(given[name]) <= _LONGEST, name)
        cpus = given["cpus"]
        _check(type(cpus) is list and len(cpus) <= _MOST_CPUS, "cpus")
        _check(all(_in_range(cpu, 0, _MOST_CPUS - 1) for cpu in cpus), "cpus")
        nonce = bytes.fromhex(given["nonce"])
        _check(len(nonce) == library.NONCE, "nonce")
        return cls(**{**given, "cpus": tuple(cpus), "nonce": nonce})


def _in_range(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _check(right: bool, name: str) -> None:
    if not right:
        raise ValueError(f"{name} is out of range")
