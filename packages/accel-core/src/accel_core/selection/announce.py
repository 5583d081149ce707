# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Log each package before the selection imports it, because a runtime may abort the process without a message."""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from accel_core import env
from accel_core.errors import InvalidEnvironment

_log = logging.getLogger("accel_core")


@contextmanager
def about_to(step: str) -> Iterator[None]:
    """Log the next step, on stderr under ACCEL_VERBOSE=1, and again if it is interrupted (Ctrl-C)."""
    _log.debug("about to %s", step)
    if _verbose():
        _write(f"accel_core: about to {step}\n")
    try:
        yield
    except KeyboardInterrupt:
        _log.warning("interrupted while it was about to %s", step)
        raise


def is_worker() -> bool:
    """Whether this is a child of multiprocessing that is no rank, such as a worker of a DataLoader.

    Workers are daemons. While a child imports the program's module at its start, the parent has run that module.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    current = process.current_process()
    return bool(current.daemon or getattr(current, "_inheriting", False))


def _verbose() -> bool:
    try:
        return env.VERBOSE.on()
    except InvalidEnvironment:
        return True  # an invalid value still shows that more output is wanted


def _write(line: str) -> None:
    if sys.stderr is None:
        return
    sys.stderr.write(line)
    sys.stderr.flush()
    if not faulthandler.is_enabled():
        try:
            faulthandler.enable()
        except (OSError, ValueError, AttributeError):
            pass  # a notebook's stderr has no file descriptor
