# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes of tests: fresh interpreters, for imports, their order and ranks that train; and those of another user."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

from accel_core import processes
from accel_core.processes import Child

Result = TypeVar("Result")

#: Nothing of these may leak in from the shell, or from the launcher, that runs the tests.
_STEERING = ("ACCEL_", "DS_", "TOY_", "CLASSIC_", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONPATH", "RANK")
_STEERING += ("LOCAL_", "WORLD_SIZE", "MASTER_", "PYTHONWARNINGS", "PYTEST_")


def inherited(*also: str) -> dict[str, str]:
    """Return the variables of this process that steer nothing, and those named."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_STEERING) or name in also
    }


@dataclass(frozen=True)
class Ended:
    """The results of a child."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """The last line that the child printed, as JSON."""
        return json.loads(self.out.splitlines()[-1])

    def expect_success(self) -> Ended:
        assert self.status == 0, f"the child ended with {self.status}:\n{self.out}\n{self.err}"
        return self


class Children:
    """Runs snippets, with chosen folders on the import path before everything else.

    Modules in `modules` can be imported by every snippet. Ops that DeepSpeed compiles land in the test's
    own folder, where `compiled()` finds them.
    """

    def __init__(self, tmp_path: Path, modules: Path, path: Sequence[Path] = ()) -> None:
        self.folder, self.modules, self.path = tmp_path, modules, path
        self.extensions = tmp_path / "extensions"

    def on(self, *path: Path) -> Children:
        """The same, with further folders on the import path, before the others."""
        return Children(self.folder, self.modules, (*path, *self.path))

    def environment(self, **variables: str | None) -> dict[str, str]:
        """Return the environment without anything that steers selection; None takes a variable away."""
        kept = inherited()
        kept["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in (*self.path, self.modules))
        kept["TORCH_EXTENSIONS_DIR"] = str(self.extensions)
        kept["OMP_NUM_THREADS"] = "1"
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
        chosen: dict[str, str | None] = {**kept, **variables}
        return {name: value for name, value in chosen.items() if value is not None}

    def start(self, snippet: str, **variables: str | None) -> Child:
        """Start a child; `finish` waits for it."""
        return Child([sys.executable, "-c", dedent(snippet)], env=self.environment(**variables))

    def finish(self, child: Child) -> Ended:
        """Wait, whatever the child's end."""
        done = child.wait(300)
        return Ended(done.returncode, done.stdout, done.stderr)

    def attempt(self, snippet: str, **variables: str | None) -> Ended:
        """Run a snippet that may fail."""
        return self.finish(self.start(snippet, **variables))

    def run(self, snippet: str, **variables: str | None) -> Ended:
        """Run a snippet; its failure is the test's."""
        return self.attempt(snippet, **variables).expect_success()

    def ranks(self, snippet: str, ranks: int) -> list[Any]:
        """Run a snippet as each rank of a job on the CPU; returns their reports."""
        size = str(ranks)
        sizes = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "LOCAL_SIZE": size, "DS_ACCELERATOR": "cpu"}
        numbers = map(str, range(ranks))
        started = [self.start(snippet, RANK=number, LOCAL_RANK=number, **sizes) for number in numbers]
        return [ended.expect_success().report for ended in [self.finish(child) for child in started]]

    def compiled(self) -> list[str]:
        """Names of the libraries that were compiled."""
        return sorted(str(file.relative_to(self.extensions)) for file in self.extensions.rglob("*.so"))


def run(*command: object, check: bool = False, **options: Any) -> processes.Ended:
    """Run a program to its end, whatever that is; what it writes is text."""
    done = processes.run([str(word) for word in command], **({"timeout": 600} | options))
    if check:
        done.check_returncode()
    return done


def on_device(key: str, *arguments: object, devices: int | None = None, **variables: str) -> Ended:
    """Run Python with these arguments where such a device is simulated, or on the CPU; its failure is the test's."""
    base = inherited("ACCEL_CACHE_DIR") | {"OMP_NUM_THREADS": "1"} | variables
    if key != "cpu":
        base = importlib.import_module("accel_sim").environment(key, devices=devices, base=base)
    done = run(sys.executable, "-W", "ignore", *arguments, env=base)
    return Ended(done.returncode, done.stdout, done.stderr).expect_success()


def as_user(user: int, function: Callable[[], Result]) -> Result:
    """Return what the function returns in a child process of that user; an exception there is the test's."""
    fork = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)

    def child() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        tempfile.tempdir = None
        os.umask(0o022)
        try:
            sending.send((function(), ""))
        except BaseException:
            sending.send((None, traceback.format_exc()))

    process = fork.Process(target=child)
    process.start()
    sending.close()
    value, error = receiving.recv()  # EOFError if the process died
    process.join()
    assert not error, error
    return value  # type: ignore[no-any-return]
