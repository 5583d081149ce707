# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a program in a child process that may crash, hang or print, and read its result.

The result is passed in a file, because runtimes print on stdout. The child leads its own process group and
its working directory is temporary. `cli/worker.py` sends several requests to one process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

#: Number of characters that are kept of a child's output, from its end.
_KEPT = 4000


@dataclass(frozen=True)
class Reply:
    """The result of a child process.

    answer:  the result that it wrote last; empty if none.
    failure: how it ended early (`did not answer within 10 s`); empty on success.
    hung:    it was killed because it exceeded its time.
    output:  the end of its stdout and stderr.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    hung: bool = False
    output: str = ""


def ask(module: str, *arguments: str, seconds: float, **environment: str) -> Reply:
    """Run `python -m module` and return its result; kills its process group after `seconds`."""
    return _ask(["-m", module], arguments, seconds, environment)


def ask_source(source: str, *arguments: str, seconds: float, **environment: str) -> Reply:
    """Run source text with `python -c`, as `ask` runs a module. It imports only what the text imports."""
    return _ask(["-c", source], arguments, seconds, environment)


def _ask(program: list[str], arguments: tuple[str, ...], seconds: float, more: dict[str, str]) -> Reply:
    with TemporaryDirectory(prefix="accel-doctor-") as folder:
        answer_path, output = Path(folder, "answer.json"), Path(folder, "output")
        with output.open("wb") as printed:
            process = subprocess.Popen(
                [sys.executable, *program, "--answer", str(answer_path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=folder,
                env={**child_environment(), **more},
                start_new_session=True,
            )
        status = _ended(process, seconds)
        answer = json.loads(answer_path.read_text(encoding="utf-8")) if answer_path.exists() else {}
        failure = ended_early(status, seconds) if status != 0 or not answer else ""
        return Reply(answer, failure, status is None, end_of(output))


def end_of(output: Path) -> str:
    """Return the end of a child's output."""
    return output.read_text(encoding="utf-8", errors="replace")[-_KEPT:]


def child_environment() -> dict[str, str]:
    """Return the environment variables for a child, whose working directory differs from ours."""
    # The child runs in another directory, so that the user's current one shadows no module. Relative entries
    # of PYTHONPATH therefore become absolute. The fault handler prints the Python line of a crash.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if environment.get("PYTHONPATH"):
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in entries)
    return environment


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status, None after a timeout. Kills what is left of the process group."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that a child leads, and wait for the child."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        pass
    process.wait()


def ended_early(status: int | None, seconds: float) -> str:
    """Describe how a child without a result ended; a status of None means killed after `seconds`."""
    if status is None:
        return f"did not answer within {seconds:g} s"
    return ending(status)


def ending(status: int) -> str:
    """Describe an exit status in words."""
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"ended its process with status {status}"


def write(answer_path: Path | None, **answer: Any) -> None:
    """In the child: write the result, replacing an earlier one; prints it if there is no path."""
    text = json.dumps(answer)
    if answer_path is None:
        print(text, flush=True)
        return
    draft = answer_path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(answer_path)


def leave() -> NoReturn:
    """In the child: exit at once, without exit handlers. A runtime that fails at exit does not change the result."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
