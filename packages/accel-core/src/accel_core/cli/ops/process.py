# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The child process in which ops are loaded, and what it prints and sends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accel_core.cli import child

#: Interval at which a silent child is polled.
_POLL_SECONDS = 0.2
#: First lines of a dump of Python's faulthandler; the runtime's own output precedes them.
_FAULT = ("Fatal Python error", "Thread 0x", "Current thread 0x")


class Ended(Exception):
    """The child ended early or was killed; the text describes how."""


class WorkerProcess:
    """`python -m accel_core.cli.ops.worker` in its own process group, which is killed on exit."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._folder = TemporaryDirectory(prefix="accel-ops-")
        self._output = Path(self._folder.name, "output")
        self._reading, writing = os.pipe()
        self._pending = b""
        #: Bytes of output before the op that is being tried; error descriptions omit them.
        self.printed = 0
        module = "accel_core.cli.ops.worker"
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, "--messages", str(writing), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._folder.name,
                    env=child.child_environment(),
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        finally:
            os.close(writing)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        child.kill_group(self._process)
        os.close(self._reading)
        self._folder.cleanup()

    def message(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message, None if there is none within `seconds`; raises Ended."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            ended = self._process.poll() is not None
            ready, _, _ = select.select([self._reading], [], [], 0 if ended else _POLL_SECONDS)
            data = os.read(self._reading, 65536) if ready else b""
            self._pending += data
            # Wait for the end of the child, not of the pipe, which its own child processes may keep open.
            if not data and (ended or ready):
                raise Ended(self._description(child.ending(self._process.wait())))
            if not data and time.monotonic() > deadline:
                return None
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def kill(self, reason: str) -> Ended:
        """Kill the child; returns the exception for the caller to raise."""
        child.kill_group(self._process)
        return Ended(self._description(reason))

    def _description(self, how: str) -> str:
        """Describe how the child ended, with the last line that it printed before a dump of faulthandler."""
        with self._output.open("rb") as output:
            output.seek(self.printed)
            lines = output.read().decode("utf-8", "replace").splitlines()
        words = []
        for line in lines:
            if line.startswith(_FAULT):
                break
            if line.strip():
                words.append(line.strip())
        return ": ".join([how, *words[-1:]])
