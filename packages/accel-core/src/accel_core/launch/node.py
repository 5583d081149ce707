# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ranks of one host: the launcher runs them itself on its own host, an agent on any other."""

from __future__ import annotations

import os
import sys

from accel_core.errors import AccelError
from accel_core.launch import entry
from accel_core.launch.job import Job
from accel_core.launch.plan import Host, Plan
from accel_core.launch.supervise.output import report_failure
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import Relay, View


def completed(plan: Plan, node_rank: int) -> Host:
    """Return the host with its ranks bound; raises BindingImpossible if its topology, known here only, forbids it."""
    if plan.hosts[node_rank].bound_here:
        # These import torch, which the guards of ranks do not.
        from accel_core.api import CURRENT
        from accel_core.launch import facts, planning

        with CURRENT.quiet():
            plan = planning.complete(plan, node_rank, facts.local(), facts.accelerator(), os.environ)
    return plan.hosts[node_rank]


def supervisor(job: Job, node_rank: int, view: View, *, lifeline: int = -1, stdin: int = -1) -> Supervisor:
    """Return a supervisor of the ranks of one host.

    lifeline: as in `Supervisor`. stdin: descriptor for global rank 0 to read; -1: none.
    """
    host = completed(job.plan, node_rank)
    return Supervisor(
        entry.WORKER,
        [job.assignment(host, rank, stdin if rank.rank == 0 else -1) for rank in host.ranks],
        os.environ,
        hosts(job.plan),
        view,
        lifeline,
    )


def hosts(plan: Plan) -> dict[int, str]:
    """Return the name of the host of each rank."""
    return {rank.rank: host.name for host, rank in plan.ranks()}


def _taken(path: str) -> str:
    """Return the text of a file that the launcher has written, and remove it; raises OSError if it is another's."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        os.unlink(path)
        return file.read()


def main() -> int:
    """Run the ranks of one host, as the agent of a launcher on another: `HOST FILE`, with the text of `Job.to_text`.

    The agent stops when its standard input ends: then the connection to the launcher no longer exists.
    """
    name, path = sys.argv[1:]
    job = Job.from_text(_taken(path))
    # pdsh leaves out the user of `user@host`.
    named = (host.node_rank for host in job.plan.hosts if host.name.rpartition("@")[2] == name)
    node_rank = next(named)
    try:
        agent = supervisor(job, node_rank, Relay(job.token), lifeline=0)
    except AccelError as error:
        return report_failure(job.token, job.plan.hosts[node_rank].ranks[0].rank, str(error), 1)
    agent.run()
    return agent.ends.exit_code(agent.stopped_by)
