# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Child processes: `run` for a command that ends, `Worker` for one that replies, and command lines of our own programs.

`python -m` puts the working folder ahead of the standard library: a user's `queue.py`, or a module that another user
has put there, would be imported. `python -P` needs Python 3.11.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from subprocess import PIPE, STDOUT, CompletedProcess, Popen, TimeoutExpired
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

_PATH = "import sys; sys.path = [p for p in sys.path if p]"
Command = Sequence[str | os.PathLike[str]]
Tick = Callable[[], object]
Ended = CompletedProcess[str]
_POLL_SECONDS = 0.1
#: Names of signals; real-time signals have none.
SIGNALS = {each.value: each.name for each in signal.Signals}
#: First lines of a dump of Python's faulthandler; the runtime's own output precedes them.
_FAULT = ("Fatal Python error", "Thread 0x", "Current thread 0x")


def run_module(module: str) -> tuple[str, ...]:
    """Return the command that runs a module as `python -m` does."""
    code = f"{_PATH}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return (sys.executable, "-c", code)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what is written to standard output inside to standard error: some runtimes print when they are imported."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, AttributeError):  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def run(
    command: Command, timeout: float = inf, tick: Tick = lambda: None, grace: float = 0.0, **options: Any
) -> Ended:
    """Run a command to its end. Raise TimeoutExpired after `timeout` seconds; its children end with it.

    tick: called now and then; the time limit starts again when the returned value changes.
    grace: seconds that the child has after Ctrl-C, before KeyboardInterrupt is raised; a second Ctrl-C kills it.
    options: of `Child`.
    """
    return Child(command, **options).wait(timeout, tick, grace)


class Child:
    """A running command. Its output is kept in files: processes that it leaves behind could hold pipes open.

    options: of `subprocess.Popen`; by default there is no input, and both outputs are kept. Processes that the
    command leaves behind are killed with `start_new_session=True`. input: text for standard input.
    """

    def __init__(self, command: Command, input: str = "", **options: Any) -> None:
        options = {"stdout": PIPE, "stderr": PIPE} | options
        self._leads = options.get("start_new_session", False)
        self._kept: dict[str, Any] = {n: TemporaryFile() for n in ("stdout", "stderr") if options[n] == PIPE}
        with TemporaryFile() as stdin:
            stdin.write(os.fsencode(input))
            stdin.seek(0)
            self.process = Popen(command, **{"stdin": stdin, **options, **self._kept})

    def wait(self, timeout: float = inf, tick: Tick = lambda: None, grace: float = 0.0) -> Ended:
        """Wait for the end, as `run` does."""
        began, seen = time.monotonic(), None
        try:
            while True:
                with contextlib.suppress(TimeoutExpired):
                    status = self.process.wait(_POLL_SECONDS)
                    return CompletedProcess(self.process.args, status, self.read(), self.read("stderr"))
                if (now := tick()) != seen:
                    began, seen = time.monotonic(), now
                elif time.monotonic() - began >= timeout:
                    raise TimeoutExpired(self.process.args, timeout, self.read(), self.read("stderr"))
        except KeyboardInterrupt:
            with contextlib.suppress(TimeoutExpired, KeyboardInterrupt):
                if grace and self._leads:  # the terminal has told only its own group
                    os.killpg(self.process.pid, signal.SIGINT)
                self.process.wait(grace)
            raise
        finally:
            self.end()

    def read(self, name: str = "stdout") -> str:
        """Return what is kept of an output."""
        if name not in self._kept:
            return ""
        file = self._kept[name].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")

    def end(self) -> None:
        """Kill the child with its descendants, and the group that it leads; calling again does nothing."""
        import psutil  # slow to import, and seldom needed

        ended = self.process.poll() is not None
        below: list[Any] = [] if ended else psutil.Process(self.process.pid).children(recursive=True)
        if self._leads:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: the latter for zombies
                os.killpg(self.process.pid, signal.SIGKILL)
        for process in (*below, self.process):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        self._leads = False


@dataclass(frozen=True)
class Reply:
    """The result of a worker.

    answer:    its result; empty if none.
    failure:   how it ended early (`did not answer within 10 s`); empty on success.
    output:    the last 4,000 characters of its stdout and stderr.
    last_line: the last line that the runtime printed during a failed request.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    output: str = ""
    last_line: str = ""


class Worker:
    """Runs Python with these arguments: `-m` and a module that calls `serve`, or `-c` and a program that sends once.

    The last argument that it gets is the number of the descriptor of its `Connection`: runtimes print on stdout and
    read stdin. Its working directory is temporary. A worker cannot be used after a failed reply.
    """

    def __init__(self, *arguments: str, **environment: str) -> None:
        # It runs in another folder, so that no module is shadowed: relative entries of PYTHONPATH become absolute.
        path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        environment = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, path)), **environment}
        # The fault handler prints the Python line of a crash.
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **environment}
        self._folder = TemporaryDirectory(prefix="accel-")
        self._pipe, theirs = Pipe()
        self._printed = 0  # characters, before the request
        with theirs:
            number = theirs.fileno()
            self._child = Child(
                [sys.executable, *arguments, str(number)], stderr=STDOUT, cwd=self._folder.name,
                env=environment, start_new_session=True, pass_fds=(number,),
            )  # fmt: skip

    def ask(self, seconds: float, what: str, *arguments: Any) -> Reply:
        """Send a request and wait up to `seconds` for the reply."""
        self.send(what, *arguments)
        return self.receive(seconds)

    def send(self, what: str, *arguments: Any) -> None:
        """Send a request; `receive` returns the reply."""
        self._printed = len(self._child.read())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `receive` returns how it has ended
            self._pipe.send((what, *arguments))

    def receive(self, seconds: float) -> Reply:
        """Return the reply. A child that does not reply within `seconds` is killed."""
        process, began = self._child.process, time.monotonic()
        # A child process of the child may keep the pipe open.
        while not self._pipe.poll(_POLL_SECONDS) and process.poll() is None:
            if time.monotonic() - began >= seconds:
                break
        try:
            if self._pipe.poll():
                return Reply(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            with contextlib.suppress(TimeoutExpired):
                process.wait(1.0)  # the pipe is closed shortly before the process ends
        failure = f"did not answer within {seconds:g} s"
        if (status := process.poll()) is not None:
            how = f"ended its process with status {status}"
            failure = how if status >= 0 else f"died by {SIGNALS.get(-status, f'signal {-status}')}"
        output, last = self._child.read(), ""
        for line in output[self._printed :].splitlines():
            if line.startswith(_FAULT):
                break
            last = line.strip() or last
        self.close()
        return Reply({}, failure, output[-4000:], last)

    def close(self) -> None:
        """End the process; calling again does nothing."""
        self._child.end()
        self._pipe.close()
        self._folder.cleanup()


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
