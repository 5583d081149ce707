# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The worker under mpirun or srun: finds out which rank it is, and survives as a guard if the engine kills it.

Engines end their processes with SIGKILL. The process that the engine knows therefore only passes signals on to a
second one, the guard, which loses its lifeline with it and then ends the rank and what the rank has started.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from accel_core.errors import AccelError
from accel_core.launch.engine_errors import RankMisplaced
from accel_core.launch.job import Job, is_job_variable
from accel_core.launch.node import completed
from accel_core.launch.supervise.assignment import Assignment
from accel_core.launch.supervise.output import report_failure
from accel_core.launch.supervise.processes import PASSED_ON, STOPPING, signal_on_parent_end

Guarding = Callable[[Assignment, Mapping[str, str]], int]


def run(arguments: Sequence[str], guard: Guarding) -> int:
    """Run the rank that the engine's variables name; returns its exit code."""
    parser = argparse.ArgumentParser(prog="accel_core.launch.worker")
    parser.add_argument("--rank-from", required=True, help="variable with the global rank")
    parser.add_argument("--local-rank-from", required=True, help="variable with the rank on this host")
    names = parser.parse_args(arguments)
    rank, local_rank = int(os.environ[names.rank_from]), int(os.environ[names.local_rank_from])
    signal_on_parent_end(signal.SIGTERM)
    lifeline, kept = os.pipe()
    pid = os.fork()
    if pid:
        os.close(lifeline)
        return _pass_signals_on(pid)
    os.close(kept)
    os.setsid()
    os.dup2(lifeline, 0)
    os.close(lifeline)
    job = Job.from_environment(os.environ)
    try:
        assignment = _assignment(job, rank, local_rank)
    except AccelError as error:
        return report_failure(job.token, rank, str(error), 1)
    return guard(assignment, _environment())


def _assignment(job: Job, rank: int, local_rank: int) -> Assignment:
    host, planned = next(pair for pair in job.plan.ranks() if pair[1].rank == rank)
    if planned.local_rank != local_rank:
        raise RankMisplaced(
            what=f"rank {rank} was not started where the plan has it",
            found=f"it is local rank {local_rank} of its host",
            expected=f"local rank {planned.local_rank} of {host.name}",
            do="leave out those --launcher_args that place ranks",
        )
    host = completed(job.plan, host.node_rank)
    return job.assignment(host, host.ranks[local_rank])


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not is_job_variable(name)}


def _pass_signals_on(pid: int) -> int:
    def pass_on(number: int, _: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    for number in (*STOPPING, *PASSED_ON):
        signal.signal(number, pass_on)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
