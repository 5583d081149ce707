# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`--elastic_training`: torch elastic decides which hosts take part, and restarts ranks when that changes or one fails.

Its agent has the rendezvous and the restarts; the ranks are run by our guards, bound as in the plan.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing import ProcessFailure, SignalException
from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry

from accel_core import env
from accel_launch.job import Job
from accel_launch.options import Options
from accel_launch.protocol import Assignment, say, shell_code
from accel_launch.supervisor import Supervisor, View

#: Restarts after failures; a change of hosts does not count.
RESTARTS = 3
#: The variable of the id and its default are DeepSpeed's: all hosts of a job have the same.
_RUN_ID, _DEFAULT_ID = "ELASTIC_RUN_ID", "123456789"
_MONITOR, _EXIT_BARRIER = 0.01, 30


def run(job: Job, options: Options, node_rank: int, view: View) -> Supervisor:
    """Run this host's ranks until the job has ended, and return their supervisor as it was at the end."""
    supervisor = job.supervisor(node_rank, view)
    plan = job.plan
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=f"{plan.master_addr}:{plan.master_port}",
        run_id=os.environ.get(_RUN_ID, _DEFAULT_ID),
        min_nodes=max(options.min_elastic_nodes, 1),
        max_nodes=max(options.max_elastic_nodes, options.min_elastic_nodes, len(plan.hosts)),
        is_host=node_rank == 0,
    )
    # A store that outlives a restart has addresses of ranks that have ended: torch 2.13's ranks then connect to these.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with supervisor.supervision():
        handler = rendezvous_handler_registry.create_handler(parameters)
        spec = WorkerSpec(
            role="default",
            local_world_size=len(plan.hosts[node_rank].ranks),
            rdzv_handler=handler,
            entrypoint=plan.program.command[0],
            max_restarts=RESTARTS,
            monitor_interval=_MONITOR,
        )
        agent = RankAgent(spec, supervisor)
        supervisor.on_stop = agent.interrupted
        try:
            if supervisor.stopped_by is None:  # A signal may have come while the store was made.
                agent.run()
        except SignalException:
            pass  # `stopped_by` of the supervisor has it.
        finally:
            handler.shutdown()
    return supervisor


class RankAgent(SimpleElasticAgent):
    """torch elastic's agent, on our supervisor."""

    def __init__(self, spec: WorkerSpec, supervisor: Supervisor) -> None:
        super().__init__(spec, exit_barrier_timeout=_EXIT_BARRIER)
        self._supervisor = supervisor
        self._planned = tuple(supervisor.assignments)

    def interrupted(self, number: int) -> None:
        """Leave the rendezvous, which waits for other hosts, when this process is asked to stop."""
        raise SignalException(f"received {number}", signal.Signals(number))

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        restarts = worker_group.spec.max_restarts - self._remaining_restarts
        self._supervisor.assignments = [
            self._assigned(self._planned[worker.local_rank], worker, worker_group, restarts)
            for worker in worker_group.workers
        ]
        self._supervisor.hosts = {assigned.rank: assigned.host for assigned in self._supervisor.assignments}
        self._supervisor.start()
        return {worker.local_rank: worker.global_rank for worker in worker_group.workers}

    def _assigned(self, planned: Assignment, worker: Any, group: WorkerGroup, restarts: int) -> Assignment:
        environment = {
            "RANK": worker.global_rank,
            "WORLD_SIZE": worker.world_size,
            "CROSS_RANK": group.group_rank,
            "CROSS_SIZE": group.group_world_size,
            "GROUP_RANK": group.group_rank,
            "MASTER_ADDR": group.master_addr,
            # Hosts come and go, each with a launcher of its own.
            env.STORE_ADDRESS.name: "",
            env.JOB_SECRET.name: "",
            "MASTER_PORT": group.master_port,
            "TORCHELASTIC_RESTART_COUNT": restarts,
            "TORCHELASTIC_MAX_RESTARTS": group.spec.max_restarts,
            "TORCHELASTIC_RUN_ID": group.spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": group.spec.rdzv_handler.use_agent_store,
        }
        texts = {name: str(value) for name, value in environment.items()}
        log = planned.log
        if log and restarts:
            log = f"{log.removesuffix('.log')}_{restarts}.log"
        return replace(
            planned, rank=worker.global_rank, environment={**planned.environment, **texts}, log=log
        )

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        supervisor = self._supervisor
        supervisor.turn()
        if supervisor.stopped_by is not None:
            self.interrupted(supervisor.stopped_by)
        if supervisor.running:
            return RunResult(state=WorkerState.HEALTHY)
        ended = supervisor.ends.ended
        if not any(ended.values()):
            return RunResult(state=WorkerState.SUCCEEDED, return_values=dict.fromkeys(ended))
        say(supervisor.ends.report())
        failures = {
            rank: ProcessFailure(local_rank=0, pid=-1, exitcode=shell_code(code), error_file="")
            for rank, code in ended.items()
            if code
        }
        return RunResult(state=WorkerState.FAILED, failures=failures)

    def _stop_workers(self, worker_group: WorkerGroup, *_: Any, **__: Any) -> None:
        self._end(signal.SIGTERM)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *_: Any, **__: Any) -> None:
        self._end(death_sig)

    def _end(self, number: int) -> None:
        self._supervisor.stop(number)
        while self._supervisor.running:
            self._supervisor.turn()
