# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Launchers as processes of their own, on plans whose ranks are shell scripts; and what is left of a job."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from accel_launch import planning
from accel_launch.plan import Plan, Program

#: Runs the plan in file 1 with the options in argument 2, the grace period in argument 3, and the time that a rank
#: with a traceback has to end in argument 4.
LAUNCHER = """
import functools, json, sys
from pathlib import Path
from accel_core.errors import AccelError
from accel_launch import command
from accel_launch.options import Options
from accel_launch.plan import Plan
from accel_launch import supervisor
command.Job = functools.partial(command.Job, grace=float(sys.argv[3]))
supervisor._SLOW_END = float(sys.argv[4])
try:
    given = json.loads(sys.argv[2])
    options = Options(**{**given, "launcher_args": tuple(given.get("launcher_args", ()))})
    sys.exit(command.carry_out(Plan.from_json(Path(sys.argv[1]).read_text()), options))
except AccelError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""
#: Long enough for a loaded machine; tests wait for what they need, not for this time.
PATIENCE = 120.0


@dataclass
class Launch:
    """A running launcher. mark: a variable that every process of the job has."""

    process: subprocess.Popen[bytes]
    mark: str
    folder: Path
    out: str = ""
    err: str = ""
    #: What `says` has read of standard error.
    read: bytes = b""

    def wait(self, seconds: float = PATIENCE) -> int:
        out, err = self.process.communicate(timeout=seconds)
        self.out, self.err = (out or b"").decode(), (self.read + err).decode()
        return self.process.returncode

    def says(self, words: bytes) -> None:
        """Wait until the launcher has written the words on standard error."""
        assert self.process.stderr is not None
        while words not in self.read:
            part = os.read(self.process.stderr.fileno(), 4096)
            assert part, self.read
            self.read += part

    def alive(self) -> dict[int, str]:
        """The processes of the job and their commands, found by the mark in their environment."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("JOB_MARK") == self.mark and process.pid != self.process.pid:
                    found[process.pid] = " ".join(process.cmdline())
        return found

    def gone_within(self, seconds: float) -> bool:
        return until(lambda: not self.alive(), seconds)

    def end(self) -> None:
        """Kill the launcher, and what is left of its job."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def up(self, ranks: int = 2) -> None:
        """Wait until each rank has written its file `up<rank>`."""
        for rank in range(ranks):
            self.file(f"up{rank}")

    def file(self, name: str) -> str:
        """The text of a file that a rank writes in the folder, when it is there."""
        path = self.folder / name
        assert until(lambda: path.is_file() and path.read_text().endswith("\n")), f"no file {name}"
        return path.read_text()


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait until the condition holds; False if it does not within this time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.03)
    return True


def make_plan(
    command,
    folder,
    *,
    ranks=2,
    hosts=("localhost",),
    cpus=(),
    spread=False,
    more=None,
    arguments=(),
    port=29500,
):
    """A plan with `ranks` ranks on each host, bound to `cpus`. spread: each rank has a part of them."""
    program = Program(tuple(command), tuple(arguments), pass_local_rank=False)
    job = Plan((), "127.0.0.1", port, program, str(folder))
    plan = planning.arrange(job, dict.fromkeys(hosts, range(ranks)), {}, None, {})

    def bound(rank):
        own = tuple(cpus[rank.local_rank :: ranks] if spread else cpus)
        return replace(rank, cpus=own, cores=len(own), environment={"OMP_NUM_THREADS": "1", **(more or {})})

    made = (replace(host, bound_here=False, ranks=tuple(map(bound, host.ranks))) for host in plan.hosts)
    return replace(plan, hosts=tuple(made))


#: Keep the ports of this process from others that ask for any free one.
_HELD: list[socket.socket] = []


def free_port() -> int:
    """A port that no process listens on, now or during the test; other jobs of this machine use the default one."""
    trial = socket.socket()
    trial.bind(("", 0))
    # Who binds with it may listen.
    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _HELD.append(trial)
    return int(trial.getsockname()[1])


@pytest.fixture
def start(tmp_path):
    """Starts a launcher: start("shell script of each rank", ranks=2, grace=…, options={…}, stdin=…, …)."""
    started = []

    def go(script, *, grace=5.0, slow_end=3.0, options=None, environment=None, streams=None, **plan):
        mark = uuid.uuid4().hex
        command = ("sh", "-c", script) if isinstance(script, str) else script
        plan = {"port": free_port(), **plan, "more": {"JOB_MARK": mark, **plan.get("more", {})}}
        file = tmp_path / f"plan-{mark}.json"
        file.write_text(make_plan(command, tmp_path, **plan).to_json())
        given = (file, json.dumps(options or {}), grace, slow_end)
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        streams = {"stdin": subprocess.DEVNULL, **pipes, **(streams or {})}
        command = [sys.executable, "-c", LAUNCHER, *map(str, given)]
        process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, **streams)
        started.append(Launch(process, mark, tmp_path))
        return started[-1]

    yield go
    for launch in started:
        launch.end()


@pytest.fixture
def make(tmp_path):
    """`make_plan` for programs that run in `tmp_path`."""
    return lambda command, **more: make_plan(command, tmp_path, **more)
