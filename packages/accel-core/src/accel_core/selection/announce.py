# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Name each package before the selection imports it: a runtime that aborts takes the process with it without a word."""

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
    """Say what comes next, on stderr under ACCEL_VERBOSE=1; name it too when it is interrupted (Ctrl-C)."""
    _log.debug("about to %s", step)
    if _verbose():
        _write(f"accel_core: about to {step}\n")
    try:
        yield
    except KeyboardInterrupt:
        _log.warning("interrupted while it was about to %s", step)
        raise


def _verbose() -> bool:
    try:
        return env.VERBOSE.on()
    except InvalidEnvironment:
        return True  # the value has no meaning; the wish for more output has


def _write(line: str) -> None:
    if sys.stderr is None:
        return
    sys.stderr.write(line)
    sys.stderr.flush()
    if not faulthandler.is_enabled():
        try:
            faulthandler.enable()
        except (OSError, ValueError, AttributeError):
            pass  # a notebook's stderr has no file descriptor to dump to
