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

#: Interval at which a silent child is checked.
_POLL_SECONDS = 0.1
#: First lines of a dump of Python's faulthandler; the runtime's own output precedes them.
_FAULT = ("Fatal Python error", "Thread 0x", "Current thread 0x")


class Worker:
    """Runs `python -m module`, which calls `serve`. A worker cannot be used after a failed reply."""

    def __init__(self, module: str, **environment: str) -> None:
        self._folder = TemporaryDirectory(prefix="accel-")
        self._output = Path(self._folder.name, "output")
        questions, self._ask = os.pipe()
        self._answers, answers = os.pipe()
        self._received = b""
        #: Bytes that were printed before the request.
        self._printed = 0
        descriptors = (questions, answers)
        self._process = child.start(
            ["-m", module, *map(str, descriptors)], self._output, environment, descriptors
        )
        os.close(questions)
        os.close(answers)

    def ask(self, seconds: float, what: str, *arguments: str) -> Reply:
        """Send a request and wait up to `seconds` for the reply."""
        self.send(what, *arguments)
        return self.receive(seconds)

    def send(self, what: str, *arguments: str) -> None:
        """Send a request; `receive` returns the reply."""
        self._printed = self._output.stat().st_size
        try:
            os.write(self._ask, json.dumps([what, *arguments]).encode() + b"\n")
        except BrokenPipeError:
            pass  # the child has ended; `receive` returns how

    def receive(self, seconds: float) -> Reply:
        """Return the reply. A child that does not reply within `seconds` is killed with its process group."""
        self.wait(seconds)
        return self.reply(seconds)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; returns True if there is a reply or the child has ended."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            dead = self._process.poll() is not None
            left = deadline - time.monotonic()
            if not dead and left <= 0:
                return False
            ready, _, _ = select.select([self._answers], [], [], 0 if dead else min(left, _POLL_SECONDS))
            part = os.read(self._answers, 1 << 16) if ready else b""
            # A child process of the child may keep the pipe open.
            if not part and (ready or dead):
                self._wait_a_moment()
                return True
            self._received += part
        return True

    def reply(self, seconds: float) -> Reply:
        """Return the reply for which `wait` has waited; if there is none after `seconds`, kill the child."""
        line, newline, rest = self._received.partition(b"\n")
        if newline:
            self._received = rest
            return Reply(json.loads(line))
        failure = child.ending(self._process.poll(), seconds)
        child.kill_group(self._process)
        reply = Reply({}, failure, child.end_of(self._output), self._last_line())
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

    def _last_line(self) -> str:
        """Return the last line printed since the request, before any dump of faulthandler."""
        last = ""
        for line in self._output.read_bytes()[self._printed :].decode("utf-8", "replace").splitlines():
            if line.startswith(_FAULT):
                break
            last = line.strip() or last
        return last

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
    # Exit without exit handlers: a runtime that fails at exit does not change the replies.
    os._exit(0)
