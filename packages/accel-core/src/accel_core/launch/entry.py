# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command lines of our own processes.

`python -m` would put the present folder ahead of the standard library; a user's `queue.py` would be imported for it.
"""

from __future__ import annotations

import sys


def _main_of(module: str) -> tuple[str, ...]:
    code = f"import sys; sys.path = [p for p in sys.path if p]; from {module} import main; sys.exit(main())"
    return (sys.executable, "-c", code)


#: Runs one rank; see `accel_core.launch.worker`.
WORKER = _main_of("accel_core.launch.worker")
#: Runs the ranks of one host; see `accel_core.launch.node`.
AGENT = _main_of("accel_core.launch.node")
