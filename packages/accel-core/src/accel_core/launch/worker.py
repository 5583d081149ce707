# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The process that every engine starts for a rank: binds itself, then runs the rank and guards it.

Its supervisor on the same host writes the assignment to its standard input, which stays open as the lifeline.
Under mpirun and srun, with `--rank-from VARIABLE`, the job is in the environment and the engine says which rank
this is; see `foreign`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from accel_core.errors import AccelError
from accel_core.launch.supervise import bind
from accel_core.launch.supervise.assignment import Assignment
from accel_core.launch.supervise.guard import Guard
from accel_core.launch.supervise.output import report_failure

_CANNOT_START = 127


def main() -> int:
    """Run one rank; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments:
        from accel_core.launch import foreign

        return foreign.run(arguments, guard)
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return 1  # The launcher ended before it had said what to do.
        line += data
    return guard(Assignment.from_line(line), os.environ)


def guard(assignment: Assignment, environment: Mapping[str, str]) -> int:
    """Bind this process and run the rank; a failure before the rank starts is reported like one of the rank."""
    try:
        bind.bind_cpus(assignment.cpus)
        refused = bind.bind_memory(assignment.memory_mode, assignment.memory_nodes)
        if refused:
            nodes = ",".join(map(str, assignment.memory_nodes))
            _write(
                f"accel launch: rank {assignment.rank}: no memory policy for NUMA node {nodes}: {refused}\n"
            )
        return Guard(assignment, environment).run()
    except AccelError as error:
        return report_failure(assignment.token, assignment.rank, str(error), 1)
    except OSError as error:
        text = f"cannot start {assignment.command[0]}: {error}"
        return report_failure(assignment.token, assignment.rank, text, _CANNOT_START)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
