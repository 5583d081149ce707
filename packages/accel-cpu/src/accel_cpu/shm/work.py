# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives in the order of their calls: on the caller's thread, or on a thread of the group if asynchronous."""

# torch's stubs name the parameters otherwise.
# mypy: disable-error-code="override, explicit-override"

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from accel_cpu.errors import CollectiveFailed

_NO_LIMIT = timedelta(0)


class Finished(Work):
    """The handle of a collective that is done."""

    def __init__(self, results: list[Any]) -> None:
        super().__init__()
        self._results = results

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> list[Any]:
        return self._results

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._results)
        return future


class Pending(Work):
    """The handle of a collective on the group's thread. `wait` raises what it has raised."""

    def __init__(self, done: Future[None], results: list[Any]) -> None:
        super().__init__()
        self._done = done
        self._results = results

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        seconds = timeout.total_seconds()
        try:
            self._done.result(seconds if seconds > 0 else None)
        except NotDone:
            if self._done.done():
                raise
            raise RuntimeError(f"the collective was not done within {seconds:g} s") from None
        return True

    def is_completed(self) -> bool:
        return self._done.done()

    def is_success(self) -> bool:
        return self._done.done() and self._done.exception() is None

    def exception(self) -> Any:
        return self._done.exception() if self._done.done() else None

    def result(self) -> list[Any]:
        self.wait()
        return self._results

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()

        def finish(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                future.set_result(self._results)
            else:
                future.set_exception(error)

        self._done.add_done_callback(finish)
        return future


class Sequencer:
    """Runs callables one after the other, whatever thread they come from."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        self._last: Future[None] | None = None
        self._turn = threading.RLock()
        self._busy = False
        self._at_end: Callable[[], None] | None = None

    def run(self, call: Callable[[], None], results: list[Any], *, asynchronous: bool) -> Work:
        """Run `call` after all earlier ones; returns its handle. Synchronous: it is done on return, or raises.

        Raises `CollectiveFailed` in a forked child, and within another call.
        """
        if os.getpid() != self._process:
            raise _forked()
        if not asynchronous and (self._last is None or self._last.done()):
            self._in_turn(call)
            return Finished(results)
        self._last = self._thread.submit(self._in_turn, call)
        pending = Pending(self._last, results)
        if not asynchronous:
            pending.wait()
        return pending

    def close(self, at_end: Callable[[], None], break_off: Callable[[], None]) -> None:
        """Wait for all that was called, end the thread and call `at_end`.

        break_off: ends a call that is under way. Used where it cannot be waited for, in a signal handler that has
        interrupted it; `at_end` is then called after it.
        """
        if os.getpid() != self._process:
            return
        self._thread.shutdown()
        # A later call raises what the closed group does, not that its executor is shut down.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        with self._turn:
            if self._busy:
                self._at_end = at_end
                break_off()
            else:
                at_end()

    def _in_turn(self, call: Callable[[], None]) -> None:
        with self._turn:
            if self._busy:
                raise _within()
            self._busy = True
            try:
                call()
            finally:
                self._busy = False
                if self._at_end is not None:
                    self._at_end()


def _forked() -> CollectiveFailed:
    return CollectiveFailed(
        what="this process group cannot be used here",
        found="a process that was forked after the group was made",
        expected="the process that has made the group",
        do="start processes with torch.multiprocessing's spawn",
    )


def _within() -> CollectiveFailed:
    return CollectiveFailed(
        what="a collective cannot begin within another one of its process group",
        found="a signal handler, or a finalizer, that ran while this rank was waiting for another",
        expected="collectives where the program calls them, in the same order on all ranks",
        do="set a flag in the handler, and look at it between collectives",
    )
