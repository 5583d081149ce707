# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The one accelerator of this process: get, set, and use for a while."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accel_core.construct import validated
from accel_core.errors import AccelError, NoAccelerator
from accel_core.known import SUPPORTED_ACCELERATOR_LIST
from accel_core.select import Selection, select

if TYPE_CHECKING:
    from accel_core.interface import DeepSpeedAccelerator

_log = logging.getLogger("accel_core")
_lock = threading.RLock()
_current: Any = None
_selection: Selection | None = None
_selecting = False
_listeners: list[Callable[[Any], None]] = []


@dataclass
class Upstream:
    """What selection asks of DeepSpeed; `accel_core.activate` fills it in.

    keys:  the accelerators it has a backend for, None when it is not installed.
    defer: makes its own accelerator object for a key.
    load:  imports it, which asks for the accelerator.
    """

    keys: Callable[[], frozenset[str] | None] = lambda: None
    defer: Callable[[str], Any] = lambda key: None
    load: Callable[[], None] = lambda: None


upstream = Upstream()


def get_accelerator() -> DeepSpeedAccelerator:
    """The accelerator of this process, selected at the first call.

    A failed selection raises the same error at every call, until `set_accelerator` is called.
    Raises the errors ACC-2xx (`ValueError` or `RuntimeError`), see docs/errors.md.
    """
    if _current is not None:
        return _current  # type: ignore[no-any-return]
    return _first()


def _first() -> DeepSpeedAccelerator:
    with _lock:
        if _current is None and _selection is None:
            _decide()
        if _selection is not None and _selection.verdict.error is not None:
            # A copy: the traceback of one caller neither overwrites another's nor keeps its frames alive.
            raise copy.copy(_selection.verdict.error)
        return _current  # type: ignore[no-any-return]


def _decide() -> None:
    global _selection, _selecting
    if _selecting:
        raise _reentered()
    _selecting = True
    try:
        selection = select(upstream.keys(), upstream.defer, _with_upstream)
    finally:
        _selecting = False
    if _selection is not None:
        return  # importing deepspeed on the way has selected already; that outcome stands
    _selection = selection
    if selection.verdict.error is None:
        for warning in selection.verdict.warnings:
            _log.warning(warning)
        _publish(selection.accelerator)


def _with_upstream() -> Any:
    """Import deepspeed in the middle of a selection; the accelerator that its import selected, if it did."""
    global _selecting
    _selecting = False
    # Another thread may be importing deepspeed, and ask for the accelerator under Python's import lock.
    _lock.release()
    try:
        upstream.load()
    finally:
        _lock.acquire()
        _selecting = True
    return _current


def _reentered() -> AccelError:
    return NoAccelerator(
        what="the accelerator was asked for while it was being selected",
        found="a vendor's import calls get_accelerator(), perhaps by importing deepspeed",
        expected="vendor modules that ask for no accelerator while they are imported",
        do="set imports_deepspeed=True in its Vendor record if its class derives from DeepSpeed's own",
    )


def set_accelerator(accel: DeepSpeedAccelerator | None) -> None:
    """Make this object the accelerator of the process; None clears the choice and any failed selection.

    Raises NotAnAccelerator (a TypeError and AssertionError) for anything else, and changes nothing then.
    """
    global _selection
    with _lock:
        if accel is not None:
            validated(accel)
            _log.info("accelerator set to %s by the program", type(accel).__name__)
        _publish(accel)
        _selection = None


@contextmanager
def using(accel: DeepSpeedAccelerator) -> Iterator[DeepSpeedAccelerator]:
    """Use this accelerator inside a `with` block, in the whole process; the former one returns after it."""
    former, selection = _current, _selection
    set_accelerator(accel)
    try:
        yield accel
    finally:
        _restore(former, selection)


def _restore(accel: Any, selection: Selection | None) -> None:
    global _selection
    with _lock:
        _selection = selection
        _publish(accel)


def is_current_accelerator_supported() -> bool:
    """Whether the current accelerator's name is one of DeepSpeed's."""
    return get_accelerator().device_name() in SUPPORTED_ACCELERATOR_LIST


def on_change(listener: Callable[[Any], None]) -> None:
    """Call the listener with the accelerator (or None) whenever it changes, and now if there is one."""
    _listeners.append(listener)
    if _current is not None:
        listener(_current)


def _publish(accel: Any) -> None:
    global _current
    former, _current = _current, accel
    told: list[Callable[[Any], None]] = []
    try:
        for listener in _listeners:
            told.append(listener)
            listener(accel)
    except BaseException:
        # An accelerator that a listener refuses (its op table is broken, say) must not stay half set.
        _current = former
        for listener in told[:-1]:
            listener(former)
        raise


def state() -> tuple[Any, Selection | None]:
    """The current accelerator and the selection behind it, without selecting; for `explain`."""
    return _current, _selection
