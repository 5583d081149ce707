# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Child processes that may crash, hang or print: workers, which handle requests in sequence.

Requests and replies have a pipe of their own, because runtimes print on stdout and read stdin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

#: Number of characters that are kept of a child's output, from its end.
_KEPT = 4000
#: Interval at which a silent child is checked.
_POLL_SECONDS = 0.1
#: First lines of a dump of Python's faulthandler; the runtime's own output precedes them.
_FAULT = ("Fatal Python error", "Thread 0x", "Current thread 0x")


@dataclass(frozen=True)
class Reply:
    """The result of a child process.

    answer:    its result; empty if none.
    failure:   how it ended early (`did not answer within 10 s`); empty on success.
    output:    the end of its stdout and stderr.
    last_line: the last line that the runtime printed during a failed request.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    output: str = ""
    last_line: str = ""


class Worker:
    """Runs Python with these arguments: `-m` and a module that calls `serve`, or `-c` and a program that sends once.

    The last argument that it gets is the number of the descriptor of its `Connection`. It leads a process group, and
    its working directory is temporary. A worker cannot be used after a failed reply.
    """

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._folder = TemporaryDirectory(prefix="accel-")
        self._output = Path(self._folder.name, "output")
        self._pipe, theirs = Pipe()
        #: Bytes that were printed before the request.
        self._printed = 0
        with theirs, self._output.open("wb") as output:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, *arguments, str(number)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder.name,
                env={**_environment(), **environment},
                start_new_session=True,
                pass_fds=(number,),
            )

    def ask(self, seconds: float, what: str, *arguments: Any) -> Reply:
        """Send a request and wait up to `seconds` for the reply."""
        self.send(what, *arguments)
        return self.receive(seconds)

    def send(self, what: str, *arguments: Any) -> None:
        """Send a request; `receive` returns the reply."""
        self._printed = self._output.stat().st_size
        try:
            self._pipe.send((what, *arguments))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the child has ended; `receive` returns how

    def receive(self, seconds: float, waiting: Callable[[float], None] = lambda passed: None) -> Reply:
        """Return the reply. A child that does not reply within `seconds` is killed with its process group.

        waiting: called now and then, with the seconds that have passed.
        """
        began = time.monotonic()
        # A child process of the child may keep the pipe open.
        while not self._pipe.poll(_POLL_SECONDS) and self._process.poll() is None:
            passed = time.monotonic() - began
            if passed >= seconds:
                break
            waiting(passed)
        try:
            if self._pipe.poll():
                return Reply(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)  # the pipe is closed shortly before the process ends
        failure = _ending(self._process.poll(), seconds)
        _kill_group(self._process)
        output = self._output.read_text(encoding="utf-8", errors="replace")[-_KEPT:]
        reply = Reply({}, failure, output, self._last_line())
        self.close()
        return reply

    def close(self) -> None:
        """End the process; calling again does nothing."""
        if not self._pipe.closed:
            _kill_group(self._process)
            self._pipe.close()
            self._folder.cleanup()

    def _last_line(self) -> str:
        """Return the last line printed since the request, before any dump of faulthandler."""
        last = ""
        for line in self._output.read_bytes()[self._printed :].decode("utf-8", "replace").splitlines():
            if line.startswith(_FAULT):
                break
            last = line.strip() or last
        return last


def serve(handlers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """In the child of a `Worker`: handle requests until the pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)
    try:
        while True:
            what, *arguments = pipe.recv()
            pipe.send(handlers[what](*arguments))
    except EOFError:
        # Exit without exit handlers: a runtime that fails at exit does not change the replies.
        os._exit(0)


def _environment() -> dict[str, str]:
    # The child runs in another directory, so that the user's current one shadows no module. Relative entries
    # of PYTHONPATH therefore become absolute. The fault handler prints the Python line of a crash.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    if environment.get("PYTHONPATH"):
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in entries if entry)
    return environment


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that a child leads, and wait for the child."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        pass
    process.wait()


def _ending(status: int | None, seconds: float) -> str:
    """Describe how a child without a result ended; a status of None means killed after `seconds`."""
    if status is None:
        return f"did not answer within {seconds:g} s"
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"ended its process with status {status}"
