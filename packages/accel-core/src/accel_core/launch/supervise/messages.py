# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the guard of a rank says to the launcher: marked lines among the rank's lines on standard error.

Standard error is the one channel that mpirun, srun and pdsh all bring back from every host. A mark holds the job's
random token, so that no program's output is taken for a message. A message is shorter than 1 KiB, because
these programs may cut longer lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MARK = b"\x1e"
_TEXT = 300


def encode(token: str, kind: str, rank: int, **values: Any) -> bytes:
    """Return a message as a line."""
    data = json.dumps({"kind": kind, "rank": rank, **values}).encode()
    return _MARK + token.encode() + b" " + data + b"\n"


def encode_line(token: str, rank: int, line: bytes) -> bytes:
    """Return one of a failed rank's last lines as a message."""
    text = line.decode("utf-8", "replace")
    return encode(token, "line", rank, text=text if len(text) <= _TEXT else f"{text[:_TEXT]}…")


@dataclass(frozen=True)
class Message:
    """kind: `start`, `status`, `traceback`, `line` or `end`; the values depend on it."""

    kind: str
    rank: int
    values: Mapping[str, Any] = field(default_factory=dict)


def decode(token: str, line: bytes) -> tuple[bytes, Message | None]:
    """Return what a program wrote on this line, and the message in it, if there is one."""
    before, mark, after = line.partition(_MARK + token.encode() + b" ")
    if not mark:
        return line, None
    try:
        data = json.loads(after)
        message = Message(str(data.pop("kind")), int(data.pop("rank")), data)
    except (ValueError, KeyError, AttributeError, TypeError):
        return line, None
    return before, message
