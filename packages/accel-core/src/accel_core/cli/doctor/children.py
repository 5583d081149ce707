# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The doctor's child processes: one takes the steps of a run, and is replaced if it dies; others confirm the rest."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from accel_core.cli import packages
from accel_core.cli.child import Reply
from accel_core.cli.doctor.torch_check import STEPS
from accel_core.cli.worker import Worker
from accel_core.selection.candidates import Candidate, State

#: Factor of the time limit for steps that import torch, which reads many files from a cold disk.
SLOW_STEP_FACTOR = 6


class Children:
    """Confirms candidates and constructs accelerators in child processes, and keeps the results.

    seconds: time limit of a runtime.
    worker:  the child that has imported torch; None if that failed.
    claimed: the backend that holds PrivateUse1 in that child.
    """

    def __init__(self, seconds: float, worker: Worker | None, claimed: str) -> None:
        self._seconds = seconds
        self._environment = {} if worker else {packages.AUTOLOAD: "0"}
        self._worker = worker
        self._claimed = claimed
        self.answers: dict[str, Candidate] = {}
        #: Labels of candidates that hang, kill or interrupt their process.
        self.stuck: set[str] = set()
        #: How the first process that took the steps of the run ended; empty while it runs.
        self.failure = ""
        #: `module:Class` of the accelerator that was constructed.
        self.accelerator = ""

    def confirm(self, candidate: Candidate) -> tuple[Candidate, str]:
        """Return the confirmed candidate, and the backend that holds PrivateUse1 after this step."""
        reply = self._ask(self._seconds, "confirm", candidate)
        answer = self._read(candidate, reply, "its runtime")
        self._claimed = self._claimed or reply.answer.get("claimed", "")
        self.answers[candidate.label] = answer
        return answer, self._claimed

    def build(self, candidate: Candidate) -> Candidate | str:
        """Return the key if the accelerator can be constructed, else the candidate with the reason."""
        reply = self._ask(self._seconds * SLOW_STEP_FACTOR, "construct", candidate)
        answer = self._read(candidate, reply, "its accelerator cannot be constructed: its process")
        if answer.state is State.BROKEN:
            return answer
        self.accelerator = reply.answer["accelerator"]
        return candidate.key

    def alone(self, candidate: Candidate) -> Candidate:
        """Return the candidate, confirmed in a process that imports no other runtime."""
        environment = dict(self._environment)
        if candidate.privateuse1 and self._claimed not in ("", candidate.privateuse1):
            # A backend that torch loads by itself would hold PrivateUse1.
            environment[packages.AUTOLOAD] = "0"
        with closing(Worker(STEPS, **environment)) as worker:
            reply = worker.ask(self._seconds, "confirm", candidate.key, candidate.variant, candidate.replaces)
            return self._read(candidate, reply, "its runtime")

    def close(self) -> None:
        """End the current child."""
        if self._worker is not None:
            self._worker.close()

    def _ask(self, seconds: float, step: str, candidate: Candidate) -> Reply:
        worker = self._worker or Worker(STEPS, **self._environment)
        reply = worker.ask(seconds, step, candidate.key, candidate.variant, candidate.replaces)
        self._worker = None if reply.failure else worker
        ended = reply.failure or reply.answer.get("interrupted", "")
        if ended:
            self.failure = self.failure or f"{candidate.label}: its process {ended}"
        return reply

    def _read(self, candidate: Candidate, reply: Reply, part: str) -> Candidate:
        answer = reply.answer
        if interrupted := answer.get("interrupted"):
            self.stuck.add(candidate.label)
            return candidate.now(State.BROKEN, f"{part} raises {interrupted}, which ends the program")
        if reply.failure:
            self.stuck.add(candidate.label)
            return replace(
                candidate, state=State.BROKEN, reason=f"{part} {reply.failure}", error=reply.output
            )
        return replace(
            candidate,
            state=State(answer["state"]),
            reason=answer["reason"],
            devices=answer["devices"],
            runtime=answer["runtime"],
            error=answer["error"],
        )
