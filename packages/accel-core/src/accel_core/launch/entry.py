# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command lines of our own processes.

`python -m` would put the present folder ahead of the standard library; a user's `queue.py` would be imported for it.
"""

from __future__ import annotations

import sys

#: What is left of sys.path: without the present folder, in which another user may have put modules.
_PATH = "import sys; sys.path = [p for p in sys.path if p]"


def main_of(module: str, python: str = sys.executable) -> tuple[str, ...]:
    """Return the command that calls `main()` of a module; `python`: the interpreter."""
    return (python, "-c", f"{_PATH}; from {module} import main; sys.exit(main())")


def run_of(module: str) -> tuple[str, ...]:
    """Return the command that runs a module as `python -m` does."""
    return (
        sys.executable,
        "-c",
        f"{_PATH}; import runpy; runpy.run_module({module!r}, None, '__main__', True)",
    )


#: Runs one rank; see `accel_core.launch.worker`.
WORKER = main_of("accel_core.launch.worker")
#: Runs the ranks of one host; see `accel_core.launch.node`.
AGENT = main_of("accel_core.launch.node")
#: Prints the facts of a host; see `accel_core.launch.facts`.
FACTS = main_of("accel_core.launch.facts")
#: The module with the command `accel launch`.
LAUNCH = "accel_core.launch.__main__"
