# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Start ranks and fresh processes, and collect their answers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired
from typing import Any

from accel_core.processes import Child, run_module
from accel_testkit.suite.target import Target

#: Guards against a hang, in seconds; nothing is measured. A part without progress for so long ends, here and in
#: `accel verify`.
LIMIT = 300.0
_ORDER = "order.json"


@dataclass
class RankLauncher:
    """Starts processes that find the accelerator as this run's command line names it."""

    target: Target
    folder: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)

    def run(
        self,
        job: str,
        ranks: int,
        order: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        nodes: int = 1,
        waiting: Callable[[Path], None] = lambda folder: None,
    ) -> list[dict[str, Any]]:
        """Run a job; return the ranks' answers, with `error` where a rank failed or did not end.

        order: plain data that the job reads. environment: laid over that of the ranks. limit: seconds.
        nodes: as how many nodes this machine acts, with as many ranks each. waiting: called with the folder of the
        ranks' answers, again and again until they end.
        """
        folder = self.folder / f"{next(self._numbers)}-{job}"
        folder.mkdir()
        (folder / _ORDER).write_text(json.dumps(order or {}), encoding="utf-8")
        more = dict(environment or {})
        started = [
            self._start(job, folder, {**_ranks_environment(rank, ranks, ranks // nodes), **more})
            for rank in range(ranks)
        ]
        wait_for_ranks(started, limit, lambda: waiting(folder))
        return [
            _answer(folder, rank, child.process.returncode, counts=True) for rank, child in enumerate(started)
        ]

    def _start(self, job: str, folder: Path, more: dict[str, str]) -> Child:
        command = [*run_module("accel_testkit.suite.rank"), job, str(folder)]
        environment = dict(os.environ)
        if self.target.vendor is None:
            command.append(self.target.accelerator)
            environment.pop("DS_ACCELERATOR", None)
        else:
            # As a user asks for it: the script itself names no accelerator.
            environment["DS_ACCELERATOR"] = self.target.vendor.key
        return _start(command, environment | more, folder / f"{more['RANK']}.log")


def _start(command: list[str], environment: Mapping[str, str], log: Path) -> Child:
    with log.open("wb") as output:
        return Child(command, env=environment, stdout=output, stderr=STDOUT)


def _ranks_environment(rank: int, ranks: int, of_node: int) -> dict[str, str]:
    sizes = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": of_node, "LOCAL_SIZE": of_node}
    return {
        **{name: str(size) for name, size in sizes.items()},
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % of_node),
        # The ranks meet through a file; DeepSpeed only looks whether these are set.
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "OMP_NUM_THREADS": "1",
    }


def order(folder: Path) -> dict[str, Any]:
    """Return the instructions of the test that started this rank."""
    wanted: dict[str, Any] = json.loads((folder / _ORDER).read_text(encoding="utf-8"))
    return wanted


def write(path: Path, plain: Any) -> None:
    """Write plain data as JSON atomically, so that an interrupted run leaves the last whole file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def wait_for_ranks(children: list[Child], limit: float, waiting: Callable[[], None]) -> None:
    """Wait for all ranks; once one has failed, the others have 5 seconds left."""
    until = time.monotonic() + limit
    try:
        while None in (states := [child.process.poll() for child in children]) and time.monotonic() < until:
            if any(states):
                until = min(until, time.monotonic() + 5)
            waiting()
            time.sleep(0.05)
    finally:
        for child in children:
            child.end()


def _answer(folder: Path, name: object, code: int, *, counts: bool) -> dict[str, Any]:
    """Return what a process has written. counts: whether an exit status other than 0 is an error, too."""
    path = folder / f"{name}.json"
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if (code if counts else not path.is_file()) and not answer.get("error"):
        output = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        answer["error"] = f"ended with {code}: {output[-1500:]}"
    return answer


def fresh_processes(
    job: str, arguments: Iterable[str], environments: Mapping[str, Mapping[str, str]], folder: Path
) -> dict[str, dict[str, Any]]:
    """Do a job of `suite.fresh_process` in each of the environments, all at once; return what each finds."""
    started = {}
    for name, environment in environments.items():
        program = [*run_module("accel_testkit.suite.fresh_process"), job, str(folder / f"{name}.json")]
        started[name] = _start([*program, *arguments], environment, folder / f"{name}.log")
    for child in started.values():
        with contextlib.suppress(TimeoutExpired):
            child.wait(LIMIT)
    # A runtime may fail while the process ends, after all that is looked at.
    return {n: _answer(folder, n, child.process.returncode, counts=False) for n, child in started.items()}


def streamed(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of FILE.jsonl, but for those that a crash has cut off."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def read_stream(path: Path) -> tuple[dict[str, dict[str, Any]], str, str, list[str] | None]:
    """Return rows by id, the check that did not end, why a driver ended it, and what failed if the run is finished."""
    rows: dict[str, dict[str, Any]] = {}
    running, ended, order = "", "", None
    for line in streamed(path):
        if "id" in line:
            rows[line["id"]] = line
        running = "" if "id" in line else line.get("running", running)
        ended, order = line.get("ended", ended), line.get("order", order)
    return rows, running, ended, order
