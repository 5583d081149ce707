# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an engine is, and how one that starts ranks by a command is run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from accel_core.launch import entry, node
from accel_core.launch.engine_errors import EngineUnavailable
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.assignment import Assignment
from accel_core.launch.supervise.supervisor import LostHost, Supervisor
from accel_core.launch.supervise.view import View


class Engine(Protocol):
    """Starts the ranks of a plan."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable, EngineRefused or another AccelError if it cannot; starts no process of the job."""

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return the supervisor that starts the ranks of the job and waits for them.

        folder: for files that exist as long as the job; private to the user.
        """


def find_program(names: Sequence[str], what: str, install: str) -> str:
    """Return the path of the first program that is on PATH; raises EngineUnavailable, with what to install."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise EngineUnavailable(
        what=f"cannot start ranks with {what}",
        found=f"no {' or '.join(names)} on PATH",
        expected=f"{what} on this host, and on the others of the job",
        do=f"{install}, or choose another --launcher",
    )


def of_command(
    job: Job,
    command: Sequence[str],
    view: View,
    environment: Mapping[str, str] | None = None,
    lost_host: LostHost | None = None,
) -> Supervisor:
    """Return a supervisor of a command that starts the workers of all ranks.

    environment: variables that the command gets besides those of this process. lost_host: as in `Supervisor`.
    """
    engine = Assignment(
        rank=-1,
        host="",
        command=tuple(command),
        environment=dict(environment or {}),
        directory=job.plan.directory,
        token=job.token,
        grace=job.grace,
    )
    return Supervisor(entry.WORKER, [engine], os.environ, node.hosts(job.plan), view, lost_host=lost_host)
