# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Child processes that may crash, hang or print: start, kill, describe their end; run source text in one.

A child leads its own process group and its working directory is temporary. `cli/worker.py` sends several requests
to one process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

#: Number of characters that are kept of a child's output, from its end.
_KEPT = 4000


@dataclass(frozen=True)
class Reply:
    """The result of a child process.

    answer:    its result; empty if none.
    failure:   how it ended early (`did not answer within 10 s`); empty on success.
    output:    the end of its stdout and stderr.
    last_line: the last line that the runtime printed during a failed request to a worker.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    output: str = ""
    last_line: str = ""


def ask_source(source: str, *, seconds: float) -> Reply:
    """Run source text with `python -c` and return its result; kills its process group after `seconds`.

    The program writes the result to the file that follows `--answer`.
    """
    with TemporaryDirectory(prefix="accel-") as folder:
        answer_path, output = Path(folder, "answer.json"), Path(folder, "output")
        process = start(["-c", source, "--answer", str(answer_path)], output)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_group(process)
        answer = json.loads(answer_path.read_text(encoding="utf-8")) if answer_path.exists() else {}
        failure = ending(status, seconds) if status != 0 or not answer else ""
        return Reply(answer, failure, end_of(output))


def start(
    arguments: Sequence[str],
    output: Path,
    more: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start Python as the leader of a process group, in the folder of `output`, to which it prints.

    more:        additional environment variables.
    descriptors: file descriptors that it inherits.
    """
    # The child runs in another directory, so that the user's current one shadows no module. Relative entries
    # of PYTHONPATH therefore become absolute. The fault handler prints the Python line of a crash.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if environment.get("PYTHONPATH"):
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in entries if entry)
    with output.open("wb") as printed:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            cwd=output.parent,
            env={**environment, **(more or {})},
            start_new_session=True,
            pass_fds=descriptors,
        )


def end_of(output: Path) -> str:
    """Return the end of a child's output."""
    return output.read_text(encoding="utf-8", errors="replace")[-_KEPT:]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that a child leads, and wait for the child."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        pass
    process.wait()


def ending(status: int | None, seconds: float) -> str:
    """Describe how a child without a result ended; a status of None means killed after `seconds`."""
    if status is None:
        return f"did not answer within {seconds:g} s"
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"ended its process with status {status}"
