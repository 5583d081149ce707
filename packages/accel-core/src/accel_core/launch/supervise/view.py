# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the output and the messages of the ranks go."""

from __future__ import annotations

from typing import Protocol

from accel_core.launch.supervise import messages
from accel_core.launch.supervise.lines import write_all
from accel_core.launch.supervise.messages import Message

STDOUT, STDERR = 1, 2


class View(Protocol):
    """Shows the output, and what the ranks do."""

    def line(self, target: int, line: bytes) -> None:
        """Show a line of output; target: `STDOUT` or `STDERR`. Raises OSError if nobody reads it."""

    def message(self, message: Message) -> None:
        """Note what a guard said."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Plain:
    """Writes lines as they come."""

    def line(self, target: int, line: bytes) -> None:
        """Write the line."""
        write_all(target, line)

    def message(self, message: Message) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to do."""


class Relay(Plain):
    """Passes messages on to the launcher on another host."""

    def __init__(self, token: str) -> None:
        self._token = token

    def message(self, message: Message) -> None:
        """Write the message again."""
        write_all(STDERR, messages.encode(self._token, message.kind, message.rank, **message.values))
