# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Our own Python processes: command lines without the working folder on `sys.path`, and what runtimes print in them.

`python -m` puts that folder ahead of the standard library: a user's `queue.py`, or a module that another user has put
there, would be imported. `python -P` needs Python 3.11.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_PATH = "import sys; sys.path = [p for p in sys.path if p]"


def call_main(module: str, python: str = sys.executable) -> tuple[str, ...]:
    """Return the command that calls `main()` of a module; `python`: the interpreter."""
    return (python, "-c", f"{_PATH}; from {module} import main; sys.exit(main())")


def run_module(module: str) -> tuple[str, ...]:
    """Return the command that runs a module as `python -m` does."""
    code = f"{_PATH}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return (sys.executable, "-c", code)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what is written to standard output inside to standard error: some runtimes print when they are imported."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, AttributeError):  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
