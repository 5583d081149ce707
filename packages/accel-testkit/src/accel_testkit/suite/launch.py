# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Start ranks of the suite's rank program, and bring back what they found."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accel_testkit.suite.target import Target

#: Guards against a hang, in seconds; nothing is measured.
_LIMIT = 300.0


@dataclass
class Launcher:
    """Starts processes that find the accelerator as this run's command line names it."""

    target: Target
    folder: Path
    _count: int = field(default=0, init=False)

    def run(self, job: str, ranks: int) -> list[dict[str, Any]]:
        """The answers of the ranks to a job; an answer has `error` where a rank failed or did not end."""
        self._count += 1
        folder = self.folder / f"{self._count}-{job}"
        folder.mkdir()
        started = [self._start(job, folder, rank, ranks) for rank in range(ranks)]
        _wait(started)
        return [_answer(folder, rank, process.returncode) for rank, process in enumerate(started)]

    def _start(self, job: str, folder: Path, rank: int, ranks: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "accel_testkit.suite.rank", job, str(folder)]
        environment = {**os.environ, **_ranks_environment(rank, ranks)}
        if self.target.vendor is None:
            command.append(self.target.accelerator)
            environment.pop("DS_ACCELERATOR", None)
        else:
            # As a user asks for it: the script itself names no accelerator.
            environment["DS_ACCELERATOR"] = self.target.vendor.key
        with (folder / f"{rank}.log").open("wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def _ranks_environment(rank: int, ranks: int) -> dict[str, str]:
    sizes = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "LOCAL_SIZE": ranks}
    return {
        **{name: str(size) for name, size in sizes.items()},
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        # The ranks meet through a file; DeepSpeed only looks whether these are set.
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "OMP_NUM_THREADS": "1",
    }


def _wait(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for all; once one has failed the others would wait for it in vain."""
    until = time.monotonic() + _LIMIT
    while any(process.poll() is None for process in processes):
        failed = any(process.poll() for process in processes)
        if failed or time.monotonic() > until:
            with contextlib.suppress(subprocess.TimeoutExpired):
                for process in processes:
                    process.wait(timeout=5 if failed else 0)
            for process in processes:
                process.kill()
                process.wait()
            return
        time.sleep(0.05)


def _answer(folder: Path, rank: int, code: int) -> dict[str, Any]:
    path = folder / f"{rank}.json"
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if code and not answer.get("error"):
        said = (folder / f"{rank}.log").read_text(encoding="utf-8", errors="replace")
        answer["error"] = f"ended with {code}: {said[-1500:]}"
    return answer
