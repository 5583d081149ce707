# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of this host, without a program of anyone else: `local`, and `--no_ssh` for one host of several."""

from __future__ import annotations

import os
from pathlib import Path

from accel_core.launch import node
from accel_core.launch.engine_errors import EngineRefused
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import View


def _own_input() -> int:
    """Return another number for standard input, whose own number a guard needs for its lifeline; -1: there is none."""
    try:
        return os.dup(0)
    except OSError:
        return -1


class Local:
    """Starts the ranks of a plan with one host."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineRefused if the plan has several hosts."""
        if len(plan.hosts) > 1:
            raise EngineRefused(
                what="the engine local cannot start ranks on other hosts",
                found=f"a plan for {len(plan.hosts)} hosts: {', '.join(host.name for host in plan.hosts[:4])}",
                expected="a plan for one host",
                do="choose another --launcher, or --no_ssh with --node_rank and run the command on each host",
            )

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return a supervisor of the ranks; rank 0 reads the launcher's standard input."""
        return node.supervisor(job, 0, view, stdin=_own_input())


class NoSsh:
    """Starts the ranks of host `--node_rank`; the same command runs on each host of the plan."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineRefused if the plan has no such host."""
        if not 0 <= options.node_rank < len(plan.hosts):
            raise EngineRefused(
                what="--no_ssh needs the number of this host",
                found=f"--node_rank {options.node_rank}",
                expected=f"a number from 0 to {len(plan.hosts) - 1}, as the plan has {len(plan.hosts)} hosts",
                do="give each host its own --node_rank",
            )

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return a supervisor of this host's ranks."""
        return node.supervisor(job, options.node_rank, view, stdin=_own_input())
