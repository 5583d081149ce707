# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the command tells the process of a rank, and what a rank leaves for those that are rehearsed after it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What the parent asks for.

    device: its key, or a file that describes it. role: the rank's, in the report. reserve: bytes the program cannot
    have. pad, arena: of the allocator (csrc/dry.h). fused: fused operators allocate nothing. record: the file to
    write. tape: the file for what this rank broadcasts and sends. replay: those of ranks rehearsed before.
    """

    device: str
    rank: int
    ranks: int
    role: str
    steps: int
    record: str
    tape: str
    reserve: int = 0
    pad: int = 0
    arena: bool = False
    fused: bool = True
    replay: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the options as the first argument of the process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Return the options in `text`, of `to_json`."""
        data = json.loads(text)
        return cls(**{**data, "replay": tuple(data["replay"])})


@dataclass(frozen=True)
class Tape:
    """What a rank tells those that are rehearsed after it.

    given: what it broadcast and sent, by channel, in hexadecimal digits. peers: the ranks that it sent to.
    experts: those that hold other experts of the same layers.
    """

    given: dict[str, str]
    peers: list[int]
    experts: list[int]

    @classmethod
    def read(cls, path: str | Path) -> Tape:
        """Return the tape in a file."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: str | Path) -> None:
        """Write a file that `read` understands."""
        Path(path).write_text(json.dumps(asdict(self)), encoding="utf-8")
