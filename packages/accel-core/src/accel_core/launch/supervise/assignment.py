# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the guard of one rank has to do, as JSON on its standard input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Assignment:
    """One rank on this host.

    command: argument list of the program. environment: variables to set. cpus, memory_mode, memory_nodes: as in
    `accel_core.launch.plan.Rank`. grace: seconds between SIGTERM and SIGKILL. token: marks the messages to the
    launcher. log: file for the output instead of the launcher's; empty: none. stdin: descriptor to use as the
    rank's standard input; -1: none. status: whether to send the rank's CPU and memory use every second.
    """

    rank: int
    host: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    token: str
    grace: float
    cpus: tuple[int, ...] = ()
    memory_mode: str = "default"
    memory_nodes: tuple[int, ...] = ()
    log: str = ""
    stdin: int = -1
    status: bool = False

    def to_line(self) -> bytes:
        """Return the assignment as one line of JSON."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Assignment:
        """Return the assignment that `to_line` wrote."""
        data = json.loads(line)
        for name in ("command", "cpus", "memory_nodes"):
            data[name] = tuple(data[name])
        return cls(**data)
