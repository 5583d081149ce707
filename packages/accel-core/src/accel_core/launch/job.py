# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan with what its execution needs on every host; travels to them as text without special characters."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import secrets
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_core import env
from accel_core.launch.plan import Host, Plan, Rank
from accel_core.launch.supervise.assignment import Assignment
from accel_core.store_address import is_listenable

#: Holds the job for the workers of an engine; in parts, because Linux limits a variable to 128 KiB.
VARIABLE = "ACCEL_LAUNCH_JOB"
_PART = 100_000
#: The only host of a plan that was made without a hostfile.
LOCAL = "localhost"
#: Seconds between SIGTERM and SIGKILL.
GRACE = 10.0


def _now() -> str:
    return time.strftime("%Y%m%d%H%M%S")


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
    started: str = field(default_factory=_now)

    def assignment(self, host: Host, rank: Rank, stdin: int = -1) -> Assignment:
        """Return what the guard of a rank has to do; stdin: as in `Assignment`."""
        name = f"{self.started}_rank{rank.rank}.log"
        return Assignment(
            rank=rank.rank,
            host=host.name,
            command=self.plan.command(rank),
            environment={**self._exports(), **rank.environment, **self._of_the_store(rank)},
            directory=self.plan.directory,
            token=self.token,
            grace=self.grace,
            cpus=rank.cpus,
            memory_mode=rank.memory.mode,
            memory_nodes=rank.memory.nodes,
            log=os.path.join(self.logs, name) if self.logs else "",
            stdin=stdin,
            status=self.status,
        )

    def _exports(self) -> Mapping[str, str]:
        # The same on all hosts and under each engine; alone on its own host, a launcher's ranks inherit them.
        alone = [host.name for host in self.plan.hosts] == [LOCAL]
        return {} if alone else self.plan.exports

    def _of_the_store(self, rank: Rank) -> dict[str, str]:
        plan = self.plan
        listens = rank.rank == 0 and is_listenable(plan.master_addr)
        # Set to nothing, too: a launcher may itself run in a rank of another job.
        given = {env.STORE_ADDRESS.name: plan.master_addr if listens else ""}
        # With --no_ssh each of several hosts has its own launcher, and its own secret.
        return {**given, env.JOB_SECRET.name: self.secret} if len(plan.hosts) == 1 else given

    def to_text(self) -> str:
        """Return the job as base64, without a character that a shell or pdsh interprets."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        data = json.dumps({**values, "plan": self.plan.to_json()})
        return base64.urlsafe_b64encode(zlib.compress(data.encode(), 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> Job:
        """Return the job that `to_text` wrote."""
        data = json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
        return cls(**{**data, "plan": Plan.from_json(data["plan"])})

    def to_environment(self) -> dict[str, str]:
        """Return the job as environment variables."""
        text = self.to_text()
        parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        return {f"{VARIABLE}_{index}": part for index, part in enumerate(parts)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Job:
        """Return the job in these variables."""
        names = sorted(filter(is_job_variable, environment), key=lambda name: int(name.rpartition("_")[2]))
        return cls.from_text("".join(environment[name] for name in names))


def is_job_variable(name: str) -> bool:
    """Whether a variable holds a part of the job; no rank shall see it."""
    return name.startswith(f"{VARIABLE}_") and name.rpartition("_")[2].isdigit()
