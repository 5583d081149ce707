# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives in the order of their calls: on the caller's thread, or on a thread of the group if asynchronous."""

# torch's stubs name the parameters otherwise.
# mypy: disable-error-code="override, explicit-override"

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

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
    """Runs callables one after the other."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def run(self, call: Callable[[], None], results: list[Any], *, asynchronous: bool) -> Work:
        """Run `call` after all earlier ones; returns its handle. Synchronous: it is done on return, or raises."""
        if not asynchronous and (self._last is None or self._last.done()):
            call()
            return Finished(results)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="accel-shm")
        self._last = self._thread.submit(call)
        pending = Pending(self._last, results)
        if not asynchronous:
            pending.wait()
        return pending

    def close(self) -> None:
        """Wait for all that was called, and end the thread."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
