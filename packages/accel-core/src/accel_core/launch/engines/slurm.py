# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Slurm: srun starts a worker for each rank, in the present allocation or in a new one."""

from __future__ import annotations

from pathlib import Path

from accel_core.launch import entry
from accel_core.launch.engines.engine import find_program, of_command
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import View


class Slurm:
    """Starts the ranks by srun, each on the host of the plan."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable if there is no srun."""
        self._program()

    def _program(self) -> str:
        return find_program(("srun",), "Slurm", "apt install slurm-client, and run on a cluster with Slurm")

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return a supervisor of srun."""
        # Slurm has an order of its own for the names of an allocation. With the distribution `arbitrary`, task i
        # runs on line i of this file.
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{host.name}\n" for host, _ in job.plan.ranks()), encoding="utf-8")
        command = [
            self._program(),
            f"--ntasks={job.plan.world_size}",
            f"--nodes={len(job.plan.hosts)}",
            "--distribution=arbitrary",
            "--export=ALL",
            "--input=none",
            # The plan binds ranks, not Slurm.
            "--cpu-bind=none",
            "--mem-bind=none",
            "--kill-on-bad-exit=1",
            *options.launcher_args,
            *entry.WORKER,
            *("--rank-from", "SLURM_PROCID", "--local-rank-from", "SLURM_LOCALID"),
        ]
        return of_command(job, command, view, {**job.to_environment(), "SLURM_HOSTFILE": str(hosts)})
