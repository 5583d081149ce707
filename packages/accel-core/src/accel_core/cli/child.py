# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Start a process which may crash, hang or print, end it, and say how it ended; run a program's text in one.

The child is the leader of its own process group and works in a folder that is removed with it.
`cli/worker.py` asks questions, one after another, in one process.
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

    answer:    what it answered, empty when nothing.
    failure:   how it ended before its time (`did not answer within 10 s`), empty when all went well.
    output:    the end of what it printed.
    last_line: where a question of several failed, the last line that the runtime printed after that question.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    output: str = ""
    last_line: str = ""


def ask_source(source: str, *, seconds: float) -> Reply:
    """Run a program that is given as text, and wait for its answer; kill it and all it started after the seconds.

    It writes the answer to the file that follows `--answer`, and imports no more than it says.
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
    """Start Python as the leader of a process group, in the folder of the file to which it prints.

    more:        environment variables beside those of this process.
    descriptors: open files that it inherits.
    """
    # The child works elsewhere, so that the folder the user stands in shadows no module: relative entries
    # of PYTHONPATH have to be spelt out. A crash should say which Python line it came from.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if environment.get("PYTHONPATH"):
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in entries)
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
    """Return the last of what a child printed."""
    return output.read_text(encoding="utf-8", errors="replace")[-_KEPT:]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that a child leads, and wait for the child."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        pass
    process.wait()


def ending(status: int | None, seconds: float) -> str:
    """How a child ended that gave no answer; a status of None: it was killed after so many seconds."""
    if status is None:
        return f"did not answer within {seconds:g} s"
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"ended its process with status {status}"
