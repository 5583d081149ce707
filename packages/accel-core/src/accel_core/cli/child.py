# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask a question in a process of its own, which may crash, hang or print; and answer one.

The answer travels through a file, since runtimes print on stdout. The child is the leader of its own
process group and works in a folder that is removed with it. `cli/worker.py` asks several in one process.
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

#: Last characters of what a child printed that are kept.
_KEPT = 4000


@dataclass(frozen=True)
class Reply:
    """What became of a child.

    answer:  what it wrote last, empty when nothing.
    failure: how it ended before its time (`did not answer within 10 s`), empty when all went well.
    hung:    it was killed for taking too long.
    output:  the end of what it printed.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    hung: bool = False
    output: str = ""


def ask(module: str, *arguments: str, seconds: float, **environment: str) -> Reply:
    """Run `python -m module` and wait for its answer; kill it and all it started after so many seconds."""
    return _ask(["-m", module], arguments, seconds, environment)


def ask_source(source: str, *arguments: str, seconds: float, **environment: str) -> Reply:
    """Run a program that is given as text, as `ask` runs a module. It imports no more than it says."""
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
    """Return the last of what a child printed."""
    return output.read_text(encoding="utf-8", errors="replace")[-_KEPT:]


def child_environment() -> dict[str, str]:
    """Return the environment variables of a child, which works in another folder."""
    # The child works elsewhere, so that the folder the user stands in shadows no module: relative entries
    # of PYTHONPATH have to be spelt out. A crash should say which Python line it came from.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if environment.get("PYTHONPATH"):
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in entries)
    return environment


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status, None when the time was up. Nothing of the process group is left."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads its process group, and all that it started, and wait for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        pass
    process.wait()


def ended_early(status: int | None, seconds: float) -> str:
    """How a child ended that gave no answer; a status of None: it was killed after so many seconds."""
    if status is None:
        return f"did not answer within {seconds:g} s"
    return ending(status)


def ending(status: int) -> str:
    """Say how a process with this exit status ended."""
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"ended its process with status {status}"


def write(answer_path: Path | None, **answer: Any) -> None:
    """In the child: write the answer, replacing a former one; print it where there is no path."""
    text = json.dumps(answer)
    if answer_path is None:
        print(text, flush=True)
        return
    draft = answer_path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(answer_path)


def leave() -> NoReturn:
    """In the child: end here and now. What a runtime does at exit, or fails to do, is no part of the answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
