# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A child process that handles requests in sequence, such as the steps of a run, and may die in any of them.

Requests and replies are lines of JSON in two separate pipes, because runtimes print on stdout and read stdin.
The child leads its own process group and its working directory is temporary.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accel_core.cli import child
from accel_core.cli.child import Reply

#: Interval at which a silent child is polled.
_POLL_SECONDS = 0.1


class Worker:
    """Runs `python -m module`, which calls `serve`. A worker cannot be used after a failed reply."""

    def __init__(self, module: str, **environment: str) -> None:
        self._folder = TemporaryDirectory(prefix="accel-doctor-")
        self._output = Path(self._folder.name, "output")
        questions, self._ask = os.pipe()
        self._answers, answers = os.pipe()
        self._received = b""
        with self._output.open("wb") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(questions), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=self._folder.name,
                env={**child.child_environment(), **environment},
                start_new_session=True,
                pass_fds=(questions, answers),
            )
        os.close(questions)
        os.close(answers)

    def ask(self, seconds: float, what: str, *arguments: str) -> Reply:
        """Send a request and wait up to `seconds` for the reply."""
        self.send(what, *arguments)
        return self.receive(seconds)

    def send(self, what: str, *arguments: str) -> None:
        """Send a request; `receive` returns the reply."""
        try:
            os.write(self._ask, json.dumps([what, *arguments]).encode() + b"\n")
        except BrokenPipeError:
            pass  # the child has ended; `receive` returns how

    def receive(self, seconds: float) -> Reply:
        """Return the reply. A child that does not reply within `seconds` is killed with its process group."""
        line = self._line(time.monotonic() + seconds)
        if line:
            return Reply(json.loads(line))
        hung = line is None
        if not hung:
            self._wait_a_moment()
        status = None if hung else self._process.poll()
        child.kill_group(self._process)
        failure = child.ended_early(status, seconds)
        reply = Reply({}, failure, status is None, child.end_of(self._output))
        self.close()
        return reply

    def close(self) -> None:
        """End the process; calling again does nothing."""
        if self._ask < 0:
            return
        child.kill_group(self._process)
        os.close(self._ask)
        os.close(self._answers)
        self._ask = -1
        self._folder.cleanup()

    def _line(self, deadline: float) -> bytes | None:
        """Return one line; empty if the child has ended, None after the deadline."""
        while b"\n" not in self._received:
            dead = self._process.poll() is not None
            left = deadline - time.monotonic()
            if not dead and left <= 0:
                return None
            ready, _, _ = select.select([self._answers], [], [], 0 if dead else min(left, _POLL_SECONDS))
            part = os.read(self._answers, 1 << 16) if ready else b""
            # A child process of the child may keep the pipe open.
            if not part and (ready or dead):
                return b""
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _wait_a_moment(self) -> None:
        # The pipe is closed shortly before the process ends.
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            pass


def serve(handlers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """In the child: handle requests until the pipe is closed."""
    questions, answers = (int(argument) for argument in sys.argv[1:3])
    for descriptor in (questions, answers):
        os.set_inheritable(descriptor, False)
    with os.fdopen(questions, encoding="utf-8") as lines:
        for line in lines:
            what, *arguments = json.loads(line)
            answer = json.dumps(handlers[what](*arguments)).encode() + b"\n"
            while answer:
                answer = answer[os.write(answers, answer) :]
    child.leave()
