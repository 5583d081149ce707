# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The current accelerator of a process."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accel_core import env
from accel_core.cascade import SUPPORTED_ACCELERATOR_LIST
from accel_core.errors import AccelError, NoAccelerator, NotAnAccelerator, in_short
from accel_core.selection.announce import is_worker
from accel_core.selection.construct import validated
from accel_core.selection.deepspeed import DeepSpeed
from accel_core.selection.select import Selection, select

if TYPE_CHECKING:
    from accel_core.interface import DeepSpeedAccelerator

_log = logging.getLogger("accel_core")


class CurrentAccelerator:
    """The current accelerator and the selection that chose it; `accel_core.api.CURRENT` is the one of the process.

    deepspeed: the installed DeepSpeed, as the selection uses it.
    """

    def __init__(self, deepspeed: DeepSpeed) -> None:
        self.deepspeed = deepspeed
        self._accelerator: Any = None
        self._selection: Selection | None = None
        #: The selection whose warnings have been logged.
        self._warned: Selection | None = None
        self._selecting = False
        self._deepspeed_asked = False
        self._quiet = False
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Any], None]] = []
        #: The public `get_accelerator`.
        self.get: Callable[[], DeepSpeedAccelerator]
        self._set_ready: Callable[[Any], None]
        self.get, self._set_ready = _getter(self._select_once)

    def set(self, accel: DeepSpeedAccelerator | None) -> None:
        """Set the accelerator of the process; None clears it, and any failed selection.

        Raises NotAnAccelerator (a TypeError and AssertionError) for any other object, without a change.
        """
        with self._lock:
            if accel is not None:
                validated(accel)
                _log.info("accelerator set to %s by the program", type(accel).__name__)
            former, self._selection = self._selection, None
            try:
                self._publish(accel)
            except BaseException:
                self._selection = former
                raise
            self._set_ready(accel)

    @contextmanager
    def using(self, accel: DeepSpeedAccelerator | str) -> Iterator[DeepSpeedAccelerator]:
        """Use this accelerator inside a `with` block, in the whole process; the previous one is restored after it.

        A key, such as `cpu`, stands for a new accelerator of the installed vendor, as DS_ACCELERATOR chooses it.
        """
        former = self.state()
        used: DeepSpeedAccelerator = self._of_key(accel) if isinstance(accel, str) else accel
        self.set(used)
        try:
            yield used
        finally:
            self.restore(former)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Log the warnings of a selection in this block for debugging only: the processes that it starts log them."""
        former, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = former

    def is_supported(self) -> bool:
        """Return whether the name of the current accelerator is one of DeepSpeed's."""
        return self.get().device_name() in SUPPORTED_ACCELERATOR_LIST

    def on_change(self, listener: Callable[[Any], None]) -> None:
        """Call the listener with the accelerator (or None) at every change, and now if there is one."""
        self._listeners.append(listener)
        if self._accelerator is not None:
            listener(self._accelerator)

    def state(self) -> tuple[Any, Selection | None]:
        """Return the current accelerator and the selection that chose it. Does not select."""
        return self._accelerator, self._selection

    def restore(self, state: tuple[Any, Selection | None]) -> None:
        """Restore a state that `state` returned."""
        with self._lock:
            accelerator, self._selection = state
            self._publish(accelerator)

    # ---------------------------------------------------------------------------------- selection

    def _of_key(self, key: str) -> Any:
        selection = select(self.deepspeed, self.deepspeed.load, self._has_deepspeed_asked, key)
        error = selection.verdict.error
        if error is not None:
            raise NotAnAccelerator(
                what=f"using({key!r}) gives no accelerator",
                found=in_short(error).replace(f"{env.DS_ACCELERATOR.name}=", ""),
                expected=error.expected.replace(f"{env.DS_ACCELERATOR.name} must be ", ""),
                do="give an installed vendor's key, or an accelerator object; "
                f"`accel doctor` shows why {key!r} cannot be used",
            ) from error
        for warning in selection.verdict.warnings:
            _log.warning("%s", warning)
        return selection.accelerator

    def _select_once(self) -> DeepSpeedAccelerator:
        with self._lock:
            if self._accelerator is None and self._selection is None:
                self._decide()
            selection = self._selection
            if self._accelerator is None and selection is not None and selection.verdict.error is not None:
                # A copy, so that callers do not share a traceback, which would also keep frames alive.
                raise copy.copy(selection.verdict.error)
            if selection is None or selection is self._warned or not self.deepspeed.importing():
                self._warn(selection)
            accelerator: DeepSpeedAccelerator = self._accelerator
            return accelerator

    def _warn(self, selection: Selection | None) -> None:
        """Log the warnings of the selection once, at the first use of the accelerator.

        The import of deepspeed does not count: the program may set another accelerator right after it.
        """
        self._set_ready(self._accelerator)
        if selection is None or selection is self._warned:
            return
        self._warned = selection
        others_warn = self._quiet or self.deepspeed.launching() or is_worker() or not env.is_local_rank_zero()
        level = logging.DEBUG if others_warn else logging.WARNING
        for warning in selection.verdict.warnings:
            _log.log(level, "%s", warning)

    def _decide(self) -> None:
        if self._selecting:
            self._deepspeed_asked = self.deepspeed.importing()
            raise _reentered()
        self._selecting = True
        try:
            selection = select(self.deepspeed, self._after_importing_deepspeed, self._has_deepspeed_asked)
        finally:
            self._selecting = False
        if self._selection is not None:
            return  # importing deepspeed has selected in the meantime; keep that outcome
        self._selection = selection
        if selection.verdict.error is None:
            self._publish(selection.accelerator)

    def _after_importing_deepspeed(self) -> Any:
        """Import deepspeed during a selection; returns the accelerator that its import selected, if any."""
        self._selecting = False
        # Another thread may be importing deepspeed, and call `get` while it holds Python's import lock.
        self._lock.release()
        try:
            self.deepspeed.load()
        finally:
            self._lock.acquire()
            self._selecting = True
        return self._accelerator

    def _has_deepspeed_asked(self) -> bool:
        asked, self._deepspeed_asked = self._deepspeed_asked, False
        return asked

    def _publish(self, accel: Any) -> None:
        former, self._accelerator = self._accelerator, accel
        self._set_ready(None)  # a listener that calls `get` gets the new one
        notified: list[Callable[[Any], None]] = []
        try:
            for listener in self._listeners:
                notified.append(listener)
                listener(accel)
        except BaseException:
            # If a listener raises (because the op table is broken, say), no listener may keep the new accelerator.
            self._accelerator = former
            for listener in notified[:-1]:
                listener(former)
            raise


def _getter(select_once: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return `get_accelerator` and a setter of its result (None: call `select_once`).

    DeepSpeed calls it many thousand times per step. Reading a closure's variable takes half the time of a bound
    method and an attribute.
    """
    ready: Any = None

    def get_accelerator() -> Any:
        """Return the accelerator of this process, selected at the first call.

        After a failed selection every call raises the same error, until `set_accelerator` is called: one of
        ACC-2xx (`ValueError` or `RuntimeError`), see docs/errors.md.
        """
        return select_once() if ready is None else ready

    def set_ready(accelerator: Any) -> None:
        nonlocal ready
        ready = accelerator

    return get_accelerator, set_ready


def _reentered() -> AccelError:
    return NoAccelerator(
        what="get_accelerator() was called while the accelerator was being selected",
        found="a vendor's import calls get_accelerator(), perhaps by importing deepspeed",
        expected="vendor modules that do not call get_accelerator() while they are imported",
        do="call get_accelerator() in the vendor's functions, not while its modules are imported",
    )
