# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan with what its execution needs on every host, and the ranks of one host.

The job travels to the guards of other hosts as text without special characters.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_core import env
from accel_core.data import from_data, to_data
from accel_launch.errors import BindingImpossible
from accel_launch.plan import LOCAL, Host, Plan, Rank, ip_address
from accel_launch.protocol import Assignment

#: Holds the job for the guards of an engine; in parts, because Linux limits a variable to 128 KiB.
VARIABLE = "ACCEL_LAUNCH_JOB_"
_PART = 100_000
#: Seconds between SIGTERM and SIGKILL.
GRACE = 10.0


@dataclass(frozen=True)
class Job:
    """token: marks the messages to the launcher. secret: of the ranks, if this launcher starts all of them.

    logs: folder for one log a rank; empty: none. started: in the names of the logs, the same on all hosts. status:
    whether guards report CPU and memory.
    """

    plan: Plan
    logs: str = ""
    status: bool = False
    grace: float = GRACE
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    started: str = field(default_factory=lambda: time.strftime("%Y%m%d%H%M%S"))

    def assignment(self, host: Host, rank: Rank, stdin: int = -1) -> Assignment:
        """Return what the guard of a rank has to do; stdin: as in `Assignment`."""
        plan = self.plan
        # Rank 0 may listen on an IP address alone. Of a name other hosts may know another address.
        listens = rank.rank == 0 and ip_address(plan.master_addr) is not None
        environment = {
            # Alone on its own host, a launcher's ranks inherit its variables.
            **({} if [host.name for host in plan.hosts] == [LOCAL] else plan.exports),
            **plan.variables(host, rank),
            # Set to nothing, too: a launcher may itself run in a rank of another job.
            env.STORE_ADDRESS.name: plan.master_addr if listens else "",
        }
        if len(plan.hosts) == 1:  # Each of several hosts may have its own launcher, and its own secret.
            environment[env.JOB_SECRET.name] = self.secret
        return Assignment(
            rank=rank.rank,
            command=plan.command(rank),
            environment=environment,
            directory=plan.directory,
            token=self.token,
            grace=self.grace,
            cpus=rank.cpus,
            memory_mode=rank.memory.mode,
            memory_nodes=rank.memory.nodes,
            log=os.path.join(self.logs, f"{self.started}_rank{rank.rank}.log") if self.logs else "",
            stdin=stdin,
            status=self.status,
        )

    def placed(self, rank: int, local_rank: int) -> Assignment:
        """Return the assignment of a rank that an engine has started here; raises BindingImpossible."""
        host, planned = next(pair for pair in self.plan.ranks() if pair[1].rank == rank)
        if planned.local_rank != local_rank:
            raise BindingImpossible(
                f"rank {rank} was not started where the plan has it: it is local rank {local_rank} of its "
                f"host; expected local rank {planned.local_rank} of {host.name}",
                do="leave out those --launcher_args that place ranks",
            )
        return self.assignments(host.node_rank)[local_rank]

    def hosts(self) -> dict[int, str]:
        """Return the name of the host of each rank."""
        return {rank.rank: host.name for host, rank in self.plan.ranks()}

    def assignments(self, node_rank: int, stdin: int = -1) -> list[Assignment]:
        """Return those of the ranks of one host. stdin: descriptor for global rank 0 to read; -1: none."""
        host = completed(self.plan, node_rank).hosts[node_rank]
        return [self.assignment(host, rank, stdin if rank.rank == 0 else -1) for rank in host.ranks]

    def to_text(self) -> str:
        """Return the job as base64, without a character that a shell or pdsh interprets."""
        data = json.dumps(to_data(self)).encode()
        return base64.urlsafe_b64encode(zlib.compress(data, 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> Job:
        """Return the job that `to_text` wrote."""
        return from_data(cls, json.loads(zlib.decompress(base64.urlsafe_b64decode(text))), "job")

    def to_environment(self) -> dict[str, str]:
        """Return the job as environment variables."""
        text = self.to_text()
        parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        return {f"{VARIABLE}{index}": part for index, part in enumerate(parts)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Job:
        """Return the job in these variables."""
        count = sum(name.startswith(VARIABLE) for name in environment)
        return cls.from_text("".join(environment[f"{VARIABLE}{index}"] for index in range(count)))


def completed(plan: Plan, node_rank: int) -> Plan:
    """Return the plan with a host's ranks bound; raises BindingImpossible if the host's topology forbids it."""
    if plan.hosts[node_rank].bound_here:
        # These import torch, which the guards of ranks do not.
        from accel_core.api import CURRENT
        from accel_launch import machine, planning

        with CURRENT.quiet():
            here, accelerator = machine.this_machine(), machine.accelerator()
            return planning.complete(plan, node_rank, here, accelerator, os.environ)
    return plan
