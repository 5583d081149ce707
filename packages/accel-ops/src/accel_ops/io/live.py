# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The transfers in flight of this process. Being here keeps a transfer, and so its memory, when nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from accel_ops.io.files import OpenFile
from accel_ops.io.requests import Engine
from accel_ops.pinned_memory import MEMORY


class Transfer(Protocol):
    """What is needed of a `transfer.Transfer` here."""

    file: OpenFile

    def ended(self, timeout: float | None) -> bool:
        """Wait until it has ended; return whether it has."""
        ...

    def overlaps(self, first: int, last: int) -> bool:
        """Whether it uses memory in this range."""
        ...

    def uses(self, engine: Engine) -> bool:
        """Whether it was given to this engine."""
        ...

    def lose(self) -> None:
        """In a child of fork(): it is the parent's."""
        ...


_transfers: set[Transfer] = set()
_lock = threading.RLock()


@contextmanager
def starting(transfer: Transfer) -> Iterator[None]:
    """Add a transfer that is started within; no fork() happens meanwhile."""
    with _lock:
        yield
        _transfers.add(transfer)


def ended(transfer: Transfer) -> None:
    """Remove a transfer."""
    with _lock:
        _transfers.discard(transfer)


def such_as(condition: Callable[[Transfer], bool]) -> list[Transfer]:
    """Return the transfers for which the condition holds."""
    with _lock:
        return [transfer for transfer in _transfers if condition(transfer)]


def await_memory(first: int, last: int) -> None:
    """Wait until no transfer of this process uses memory in this range of addresses."""
    for transfer in such_as(lambda transfer: transfer.overlaps(first, last)):
        transfer.ended(None)


def hold() -> None:
    """Before fork(): no transfer starts until `release`."""
    _lock.acquire()


def release() -> None:
    """After fork(), in the parent."""
    _lock.release()


def lose_all() -> None:
    """After fork(), in the child: the transfers are the parent's."""
    global _lock
    _lock = threading.RLock()
    for transfer in _transfers:
        transfer.lose()
    _transfers.clear()


MEMORY.before_free = await_memory
