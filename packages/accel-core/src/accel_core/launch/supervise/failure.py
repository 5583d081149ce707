# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How ranks ended, which of them failed first, and what the launcher says of it."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_core.launch.supervise.messages import Message

_GUESSES = {
    "SIGKILL": "out of memory?",
    "SIGBUS": "/dev/shm full?",
    "SIGILL": "an instruction that this CPU does not have?",
    "SIGSEGV": "invalid memory access",
}
#: Seconds that a rank with a traceback has to end before a rank that failed after it counts as the first.
_SLOW_END = 3.0
#: Seconds in which the failures of several ranks are collected before the others are stopped.
SETTLE = 0.3


@dataclass
class Ends:
    """What the guards of the ranks have said so far. Times are those of `time.monotonic()` here.

    hosts: name of the host of each rank.
    """

    hosts: Mapping[int, str]
    ended: dict[int, int] = field(default_factory=dict)
    failures: dict[int, float] = field(default_factory=dict)
    tracebacks: dict[int, float] = field(default_factory=dict)
    lines: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    def take(self, message: Message, now: float) -> None:
        """Note a message of a guard."""
        rank, values = message.rank, message.values
        if message.kind == "traceback":
            self.tracebacks[rank] = now
        elif message.kind == "line":
            self.lines[rank].append(str(values.get("text", "")))
        elif message.kind == "end":
            code = int(values.get("code", 1))
            self.ended[rank] = code
            if code and not values.get("stopped"):
                self.failures[rank] = now - float(values.get("age", 0.0))

    def lost(self, rank: int, code: int, now: float, stopped: bool) -> None:
        """Note that the guard of a rank has ended; without a word, if it was killed, and the rank with it."""
        if rank not in self.ended:
            self.ended[rank] = code or 1
            if not stopped:
                self.failures[rank] = now

    def settled(self, now: float) -> bool:
        """Whether a rank has failed and it is clear which one was the first."""
        if not self.failures:
            return False
        first = min(self.failures.values())
        if now < first + SETTLE:
            return False
        suspects = (
            at
            for rank, at in self.tracebacks.items()
            if rank not in self.ended and first - _SLOW_END < at < first
        )
        return now > first + _SLOW_END or not any(suspects)

    def first(self) -> int | None:
        """Return the rank that failed first."""
        return min(self.failures, key=lambda rank: self.failures[rank]) if self.failures else None

    def exit_code(self, stopped_by: int | None) -> int:
        """Return the launcher's: that of the first failure, 128 + the number of the signal that stopped it, or 0.

        stopped_by: the signal that the launcher received.
        """
        first = self.first()
        if first is not None:
            return shell_code(self.ended[first])
        own = [code for _, code in sorted(self.ended.items()) if code > 0]
        if stopped_by is not None:
            return own[0] if own else 128 + stopped_by
        return next((shell_code(code) for code in self.ended.values() if code), 0)

    def report(self) -> str:
        """Return which rank failed first, how, and its last lines; empty if none failed."""
        first = self.first()
        if first is None:
            return ""
        text = f"{self._name(first)} {described(self.ended[first])}"
        if last := self.lines.get(first):
            text += "; its last lines:\n" + "\n".join(f"    {line}" for line in last)
        later = sorted(set(self.failures) - {first}, key=lambda rank: self.failures[rank])
        if later:
            shown = "; ".join(f"{self._name(rank)} {described(self.ended[rank])}" for rank in later[:4])
            more = f" and {len(later) - 4} more" if len(later) > 4 else ""
            text += f"\n  failed after it: {shown}{more}"
        return text

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self.hosts.get(rank, 'an unknown host')}"


def shell_code(code: int) -> int:
    """Return the exit code of a shell for an exit code or a negative number of a signal."""
    return code if code >= 0 else 128 - code


def described(code: int) -> str:
    """Return how a process ended, in words; `code` is negative for a signal."""
    if code < 0:
        name = _signal_name(-code)
        guess = f" ({_GUESSES[name]})" if name in _GUESSES else ""
        return f"was killed by {name}{guess}"
    if code > 128 and (name := _signal_name(code - 128)).startswith("SIG"):
        return f"ended with exit code {code} (128 + {name})"
    return f"ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
