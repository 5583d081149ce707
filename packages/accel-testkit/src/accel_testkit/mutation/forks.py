# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run functions in forked children, several at a time; each has a process group, a folder and a limit of its own."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Task:
    """What one child does. work: called with the child's folder and a function that keeps a message for the parent.

    limit: seconds after which the child and all that it has started are killed.
    """

    work: Callable[[Path, Callable[[Any], None]], None]
    limit: float


@dataclass(frozen=True)
class Done:
    """What became of a child: the messages that it kept, and how it ended, empty if as it should."""

    messages: list[Any]
    ended: str = ""


#: Yields tasks, is sent what became of each, and returns its result.
Steps = Generator[Task, Done, Result]


@dataclass
class _Child:
    pid: int
    pipe: int
    folder: Path
    until: float
    limit: float
    text: bytes = b""


@dataclass
class Forks:
    """Runs `jobs` children at a time."""

    jobs: int
    _children: dict[int, tuple[_Child, Any]] = field(default_factory=dict)

    def run(self, all_steps: Iterable[Steps[Result]]) -> Iterator[Result]:
        """Run each to its end, and yield their results in the order in which they end."""
        waiting = iter(all_steps)
        selector = selectors.DefaultSelector()
        try:
            while True:
                while len(self._children) < self.jobs and (steps := next(waiting, None)) is not None:
                    yield from self._advance(selector, steps, None)
                if not self._children:
                    return
                for done, steps in self._ended(selector):
                    yield from self._advance(selector, steps, done)
        finally:
            for child, _ in self._children.values():
                _kill(child)
            selector.close()

    def _advance(
        self, selector: selectors.BaseSelector, steps: Steps[Result], done: Done | None
    ) -> Iterator[Result]:
        try:
            task = next(steps) if done is None else steps.send(done)
        except StopIteration as end:
            yield end.value
            return
        child = _fork(task)
        self._children[child.pipe] = child, steps
        selector.register(child.pipe, selectors.EVENT_READ)

    def _ended(self, selector: selectors.BaseSelector) -> list[tuple[Done, Any]]:
        ended = []
        for key, _ in selector.select(timeout=0.5):
            child, _ = self._children[key.fd]
            part = os.read(key.fd, 1 << 16)
            child.text += part
            if not part:
                ended.append((child, ""))
        late = [(child, f"did not end in {child.limit:.0f} s") for child, _ in self._children.values()]
        now = time.monotonic()
        ended += [(child, why) for child, why in late if child.until < now and (child, "") not in ended]
        results = []
        for child, why in ended:
            selector.unregister(child.pipe)
            _, steps = self._children.pop(child.pipe)
            results.append((_reap(child, why), steps))
        return results


def _fork(task: Task) -> _Child:
    folder = Path(tempfile.mkdtemp(prefix="accel-mutant-"))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _work(task, folder, writing)
    os.close(writing)
    return _Child(pid, reading, folder, time.monotonic() + task.limit, task.limit)


def _work(task: Task, folder: Path, pipe: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(output, stream)

        def keep(message: Any) -> None:
            os.write(pipe, json.dumps(message).encode() + b"\n")

        task.work(folder, keep)
        status = 0
    finally:
        # Neither the parent's exit handlers nor its pending output belong to the child.
        os._exit(status)


def _kill(child: _Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _reap(child: _Child, why: str) -> Done:
    if why:
        _kill(child)
    os.close(child.pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    _kill(child)  # what it has started and left
    shutil.rmtree(child.folder, ignore_errors=True)
    messages = [json.loads(line) for line in child.text.split(b"\n")[:-1]]
    if not why and status:
        why = f"ended by signal {-status}" if status < 0 else f"ended with {status}"
    return Done(messages, why)
