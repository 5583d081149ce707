# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`--elastic_training`: torch elastic decides which hosts take part, and restarts ranks when that changes or one fails.

Its agent has the rendezvous and the restarts; it starts a guard for each rank, as mpirun does.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace

from accel_launch.engines import of_command
from accel_launch.job import Job, completed
from accel_launch.options import Options
from accel_launch.protocol import GUARD, call_main
from accel_launch.supervisor import Supervisor, View

#: Restarts after failures; a change of hosts does not count.
RESTARTS = 3
#: The variable of the id and its default are DeepSpeed's: all hosts of a job have the same.
_RUN_ID, _DEFAULT_ID = "ELASTIC_RUN_ID", "123456789"


def supervisor(job: Job, options: Options, view: View) -> Supervisor:
    """Return a supervisor of this host's agent."""
    node_rank = max(options.node_rank, 0)
    job = replace(job, plan=completed(job.plan, node_rank), elastic=node_rank)
    least = max(options.min_elastic_nodes, 1)
    most = max(options.max_elastic_nodes, least, len(job.plan.hosts))
    command = [*call_main("accel_launch.elastic"), str(least), str(most)]
    host = job.plan.hosts[node_rank].name
    return of_command(
        job, command, view, job.to_environment(), hosts=defaultdict(lambda: host), restarts=True
    )


def main() -> int:
    """Run torch elastic's agent: `LEAST_HOSTS MOST_HOSTS`, with the job in the environment; returns its exit code."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, launch_agent

    job = Job.from_environment(os.environ)
    plan = job.plan
    logging.disable(logging.ERROR)  # The launcher reports ranks that failed.
    # A store that outlives a restart has addresses of ranks that have ended: torch 2.13's ranks then connect to these.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with tempfile.TemporaryDirectory(prefix="accel-") as logs:
        config = LaunchConfig(
            min_nodes=int(sys.argv[1]),
            max_nodes=int(sys.argv[2]),
            nproc_per_node=len(plan.hosts[job.elastic].ranks),
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            run_id=os.environ.get(_RUN_ID, _DEFAULT_ID),
            rdzv_backend="c10d",
            rdzv_endpoint=f"{plan.master_addr}:{plan.master_port}",
            rdzv_configs={"is_host": job.elastic == 0},
            max_restarts=RESTARTS,
            monitor_interval=0.01,
        )
        arguments = [*GUARD[1:], "--rank-from", "RANK", "--local-rank-from", "LOCAL_RANK"]
        try:
            launch_agent(config, GUARD[0], arguments)
        except SignalException as stop:
            return 128 + stop.sigval
        except ChildFailedError as error:
            return error.get_first_failure()[1].exitcode
    return 0
