# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rehearses a job: one process after the other for the ranks that stand for all."""

from __future__ import annotations

import dataclasses
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import STDOUT

from accel_core.processes import run
from accel_rehearse.native import EXTENSION, grows
from accel_rehearse.record import DryJob, DryRank, Failure, Rehearsal, Tape
from accel_sim import build, settings, stub_packages

#: Ranks of one chain of pipeline stages that are rehearsed; a ring of more is not a pipeline.
_STAGES = 64
#: Ranks that hold other experts than the first one does. Their experts have the same shapes.
_EXPERTS = 3
#: Lines of a program's output that are shown when it fails.
_TAIL = 25
#: Seconds that a rank has to write its record after Ctrl-C.
_PATIENCE = 20.0
NOT_PROMISED = (
    "memory of kernels (workspaces) and of the collectives' buffers: the reserve stands for them",
    "which attention kernel the vendor chooses; one that keeps all scores needs more",
    "shapes that depend on data, as those of a router that drops no tokens",
    "speed",
)


def rehearse(request: DryJob, say: Callable[[str], None] = lambda _text: None) -> Rehearsal:
    """Rehearse a job. say: called with each line about the progress. Raises errors of the simulator's build only."""
    for extension in (build.DEVICE, EXTENSION):
        build.library(extension)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="accel-rehearse-") as folder:
        job = _Job(request, Path(folder), say)
        try:
            for rank, role in job.ranks():
                job.rehearse(rank, role)
                if job.records[-1].outcome != "finished" or job.interrupted:
                    break
        except KeyboardInterrupt:
            job.interrupted = True
    return Rehearsal(
        **vars(request),
        ranks_rehearsed=tuple(job.records),
        assumed=_assumed(request),
        not_promised=NOT_PROMISED,
        seconds=time.monotonic() - started,
        committed=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10,
        interrupted=job.interrupted,
    )


def _assumed(request: DryJob) -> tuple[str, ...]:
    sentences = [
        f"{request.reserve / 2**30:.1f} GiB of each device are the runtime's, not the program's",
        "every rank has data of the same shapes",
        "the result of the device is zero wherever it was not computed",
        "fused optimizers allocate nothing for themselves",
    ]
    if grows():
        sentences.append("the allocator's segments grow, as its configuration says")
    return tuple(sentences)


class _Job:
    def __init__(self, request: DryJob, folder: Path, say: Callable[[str], None]) -> None:
        self.request, self.folder, self._say = request, folder, say
        self.records: list[DryRank] = []
        self.interrupted = False
        self._tapes: dict[int, Tape] = {}
        (folder / "request").write_bytes(pickle.dumps(request))

    def ranks(self) -> Iterator[tuple[int, str]]:
        """Yield the ranks to rehearse; those of later stages are known when an earlier one has been rehearsed."""
        which, last = self.request.which, self.request.ranks - 1
        done: set[int] = set()
        if "first" in which or "stages" in which:
            done.add(0)
            yield 0, "first"
        alone = True
        if "stages" in which:
            for number, rank in enumerate(self._chain(), start=2):
                done.add(rank)
                alone = False
                yield rank, f"stage {number}"
            for number, rank in enumerate(self._experts(done), start=2):
                done.add(rank)
                yield rank, f"expert group {number}"
        chosen = range(self.request.ranks) if "all" in which else map(int, filter(str.isdecimal, which))
        for rank in chosen:
            if rank not in done:
                done.add(rank)
                yield rank, {last: "last", 0: "first"}.get(rank, f"rank {rank}")
        # What the last rank of a pipeline receives is known only from the ranks of its own replica.
        if "last" in which and last not in done and alone:
            yield last, "last"

    def _chain(self) -> Iterator[int]:
        """Yield the ranks to which the one before sends what it computed, from rank 0 on."""
        seen = {0}
        while len(seen) < _STAGES:
            tape = self._tapes.get(max(self._tapes, default=-1))
            following = [peer for peer in (tape.peers if tape else ()) if peer not in seen]
            if not following:
                return
            seen.add(following[0])
            yield following[0]

    def _experts(self, done: set[int]) -> list[int]:
        """Return ranks that hold other experts than rank 0, those that are rehearsed left out."""
        tape = self._tapes.get(0)
        return [rank for rank in (tape.experts if tape else ()) if rank not in done][:_EXPERTS]

    def rehearse(self, rank: int, role: str) -> None:
        """Rehearse one rank in its own process, and keep its record."""
        self._say(f"rank {rank} of {self.request.ranks} ({role})")
        result, log = self.folder / f"rank{rank}", self.folder / f"log{rank}"
        status = self._run(rank, log)
        if result.is_file():
            record, self._tapes[rank] = pickle.loads(result.read_bytes())
            self.records.append(dataclasses.replace(record, role=role))
        else:
            self.records.append(self._lost(rank, role, status, log))
        if self.records[-1].outcome == "failed" and not self.request.output:
            self._say(_tail(log))

    def _run(self, rank: int, log: Path) -> int:
        command = [
            sys.executable,
            "-m",
            "accel_rehearse.rank",
            str(self.folder),
            str(rank),
            *self.request.program,
        ]
        try:
            with log.open("wb") as file:
                out, err = (None, None) if self.request.output else (file, STDOUT)
                environment = self._environment(rank)
                # Ctrl-C ends the program, which then writes what it has.
                return run(
                    command, grace=_PATIENCE, env=environment, stdout=out, stderr=err, start_new_session=True
                ).returncode
        except KeyboardInterrupt:
            self.interrupted = True
            return -signal.SIGINT

    def _environment(self, rank: int) -> dict[str, str]:
        request = self.request
        local = min(request.per_node, request.ranks)
        environment = stub_packages.environment(
            request.profile.vendor,
            devices=min(local, settings.MAX_DEVICES),
            memory=request.profile.capacity,
            base=os.environ,
        )
        environment.setdefault("OMP_NUM_THREADS", "1")
        names = {
            "RANK": rank,
            "WORLD_SIZE": request.ranks,
            "LOCAL_RANK": rank % request.per_node,
            "LOCAL_WORLD_SIZE": local,
            "GROUP_RANK": rank // request.per_node,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 29500,
        }
        return environment | {name: str(value) for name, value in names.items()}

    def _lost(self, rank: int, role: str, status: int, log: Path) -> DryRank:
        """Return the record of a rank that wrote none."""
        message = f"the process of the rehearsal ended with status {status} and without a record"
        if status == -signal.SIGKILL:
            message = (
                "killed: probably this machine has too little memory for what the program computes itself"
            )
        failure = Failure(f"{message}\n{_tail(log)}"[:2000])
        lost = DryRank(rank, role, "failed", 0, 0, 0, failure=failure)
        return dataclasses.replace(lost, outcome="stopped", failure=None) if self.interrupted else lost


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])
