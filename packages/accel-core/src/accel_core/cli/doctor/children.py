# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The doctor's children: one goes through the steps of a run; where it dies, another goes on; others ask the rest."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from accel_core.cli import packages
from accel_core.cli.child import Reply
from accel_core.cli.doctor.torch_check import ANSWERS
from accel_core.cli.worker import Worker
from accel_core.selection.finding import Finding, State

#: `import torch`, and what imports it, reads much from a cold disk: these get so many times the seconds.
PATIENCE = 6


class Children:
    """Confirms candidates and constructs accelerators in processes of their own; remembers the answers.

    seconds: the time of a runtime. worker: the child that has imported torch; None when it could not.
    claimed: who holds PrivateUse1 there.
    """

    def __init__(self, seconds: float, worker: Worker | None, claimed: str) -> None:
        self._seconds = seconds
        self._environment = {} if worker else {packages.AUTOLOAD: "0"}
        self._worker = worker
        self._claimed = claimed
        self.answers: dict[str, Finding] = {}
        #: Labels of candidates that hang, kill or interrupt their process.
        self.stuck: set[str] = set()
        #: What ended the run's own process first; empty while it lives.
        self.death = ""
        #: `module:Class` of the accelerator that was made.
        self.accelerator = ""

    def confirm(self, finding: Finding) -> tuple[Finding, str]:
        """The confirmed candidate, and who holds PrivateUse1 in a process that has come so far."""
        reply = self._ask(self._seconds, "confirm", finding)
        answer = self._read(finding, reply, "its runtime")
        self._claimed = self._claimed or reply.answer.get("claimed", "")
        self.answers[finding.label] = answer
        return answer, self._claimed

    def build(self, finding: Finding) -> Finding | str:
        """The key when the accelerator can be made, else the finding that says why not."""
        reply = self._ask(self._seconds * PATIENCE, "construct", finding)
        answer = self._read(finding, reply, "its accelerator cannot be constructed: its process")
        if answer.state is State.BROKEN:
            return answer
        self.accelerator = reply.answer["accelerator"]
        return finding.key

    def alone(self, finding: Finding) -> Finding:
        """The candidate, confirmed in a process that asks nobody else."""
        environment = dict(self._environment)
        if finding.privateuse1 and self._claimed not in ("", finding.privateuse1):
            environment[packages.AUTOLOAD] = "0"  # what torch loads by itself would be in its way
        with closing(Worker(ANSWERS, **environment)) as worker:
            reply = worker.ask(self._seconds, "confirm", finding.key, finding.variant)
            return self._read(finding, reply, "its runtime")

    def close(self) -> None:
        """End the child that is left."""
        if self._worker is not None:
            self._worker.close()

    def _ask(self, seconds: float, step: str, finding: Finding) -> Reply:
        worker = self._worker or Worker(ANSWERS, **self._environment)
        reply = worker.ask(seconds, step, finding.key, finding.variant)
        self._worker = None if reply.failure else worker
        ended = reply.failure or reply.answer.get("interrupted", "")
        if ended:
            self.death = self.death or f"{finding.label}: its process {ended}"
        return reply

    def _read(self, finding: Finding, reply: Reply, part: str) -> Finding:
        answer = reply.answer
        if interrupted := answer.get("interrupted"):
            self.stuck.add(finding.label)
            return finding.now(State.BROKEN, f"{part} raises {interrupted}, which ends the program")
        if reply.failure:
            self.stuck.add(finding.label)
            return replace(finding, state=State.BROKEN, reason=f"{part} {reply.failure}", error=reply.output)
        return replace(
            finding,
            state=State(answer["state"]),
            reason=answer["reason"],
            devices=answer["devices"],
            runtime=answer["runtime"],
            error=answer["error"],
        )
