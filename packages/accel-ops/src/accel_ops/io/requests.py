# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an engine is asked for, and what it answers: the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine.

    block_size: bytes of one system call, at most.
    depth:      blocks in flight of one worker, at most.
    fault_rate: for tests: this many of 1000 system calls fail, or transfer less; drawn from `fault_seed`.
    """

    block_size: int = 1 << 20
    depth: int = 32
    workers: int = 1
    fault_rate: int = 0
    fault_seed: int = 0


@dataclass(frozen=True)
class Request:
    """A transfer between memory at an address and an open file. The caller keeps both until it has ended."""

    fd: int
    write: bool
    address: int
    size: int
    offset: int
    direct: bool = False
    memory_alignment: int = 0
    offset_alignment: int = 0


@dataclass(frozen=True)
class Result:
    """How a request ended: `done` bytes from its first on were transferred; `error` is 0 or a value of errno."""

    done: int
    error: int
    error_offset: int


class Engine(Protocol):
    """Carries out requests. Times are in milliseconds; a negative one is no limit."""

    #: `uring`, `threads` or `python`.
    name: str
    #: Why it is this one; a sentence.
    reason: str

    def submit(self, request: Request) -> int:
        """Start a request; returns its number. Raises OSError where it cannot be started."""
        ...

    def wait(self, number: int, timeout: int) -> Result | None:
        """Wait for the end of a request. None: it has not ended."""
        ...

    def forget(self, number: int) -> None:
        """Delete what is known of a request that has ended."""
        ...

    def progress(self, number: int) -> int:
        """Return the bytes that a request has transferred so far."""
        ...

    def cancel(self, number: int) -> None:
        """Start no further block of the request. It ends, with ECANCELED, once those in flight have."""
        ...

    def pause(self, timeout: int) -> bool:
        """Start no further block; return whether none is in flight any more."""
        ...

    def resume(self) -> None:
        """Continue after `pause`."""
        ...

    def close(self, timeout: int) -> bool:
        """Wait for all requests and end the threads; False where some have not ended: the engine remains."""
        ...

    def abandon(self) -> None:
        """In a child of fork(): close what belongs to the engine of the parent."""
        ...
