# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The guard of a host's ranks: starts them bound to their cores, passes on their output and signals, and ends them all.

Each rank leads a session and process group of its own, and everything that it starts stays below the guard
(`adopt_orphans`). The guard ends when its ranks have ended. It ends them when its own standard input, the parent pipe,
ends: then the launcher no longer exists. If the guard is killed, the kernel kills its ranks.

The launcher writes the assignments to the parent pipe. On other hosts the job is in a file (`host_worker`), or, under
mpirun and srun, in the environment, and a guard has one rank (`engine_worker`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from accel_core.errors import AccelError
from accel_launch.errors import BindingImpossible, InvalidArguments
from accel_launch.protocol import (
    PASSED_ON,
    STDERR,
    STDOUT,
    STOPPING,
    Assignment,
    Loop,
    Message,
    adopt_orphans,
    descendants,
    end_processes,
    report_failure,
    say,
    send,
    shell_code,
    signal_on_parent_end,
    write_all,
)

_MODES = {"preferred": 1, "bind": 2}
_PREFERRED_MANY = 5  # since Linux 5.15
# set_mempolicy(2); libnuma, which wraps it, need not be installed.
_CALLS = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "loongarch64": 237, "ppc64le": 261, "s390x": 270}


def bind_cpus(cpus: Sequence[int]) -> None:
    """Restrict this process to the CPUs; none: no restriction. Raises BindingImpossible."""
    if not cpus:
        return
    try:
        os.sched_setaffinity(0, cpus)
        missing = sorted(set(cpus) - os.sched_getaffinity(0))
        found = f"the kernel left out {', '.join(map(str, missing))}" if missing else ""
    except (AttributeError, OSError) as error:  # the former where there is no affinity
        found = f"sched_setaffinity: {error}"
    if found:
        raise BindingImpossible(
            f"cannot bind this rank to the CPUs {', '.join(map(str, cpus))}: {found}; expected CPUs that "
            "are online and in this process's cpuset",
            do="make the plan on this host in its present state, or leave out the binding",
        )


def bind_memory(mode: str, nodes: Sequence[int]) -> str:
    """Set the memory policy; returns why it could not be set, empty if it was.

    A container without the capability SYS_NICE forbids it. That costs speed, not correctness.
    """
    if mode not in _MODES or not nodes:
        return ""
    call = _CALLS.get(platform.machine()) if sys.platform.startswith("linux") else None
    if call is None:
        return f"set_mempolicy is not known on {sys.platform} {platform.machine()}"
    number = _PREFERRED_MANY if mode == "preferred" and len(nodes) > 1 else _MODES[mode]
    size = 8 * (max(nodes) // 64 + 1)
    mask = sum(1 << node for node in nodes).to_bytes(size, sys.byteorder)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is given.
    failed = libc.syscall(ctypes.c_long(call), ctypes.c_int(number), mask, ctypes.c_ulong(8 * size + 1))
    return f"set_mempolicy: {os.strerror(ctypes.get_errno())}" if failed else ""


_LAST_LINES, _LONGEST = 20, 1000
_TRACEBACK = b"Traceback (most recent call last)"


def open_log(path: Path) -> int:
    """Create a log: no file, link or pipe that somebody has put there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = error.strerror
    raise InvalidArguments(
        f"cannot write the log of a rank: {path}: {reason}",
        do="give --enable_each_rank_log a folder that only you can write to",
    )


#: Seconds for a rank without launcher, and for what a rank leaves behind.
ORPHAN_GRACE, REST_GRACE = 3.0, 1.0
_PARENT_PIPE, _STATUS, _CANNOT_START = 0, 1.0, 127


class RankProcess:
    """A running rank. Raise OSError if it cannot be started."""

    def __init__(self, assignment: Assignment, loop: Loop, environment: Mapping[str, str]) -> None:
        self.assignment, self._loop = assignment, loop
        self._log = open_log(Path(assignment.log)) if assignment.log else -1
        self._at_line_start = True  # on standard error
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        #: When the rank last began to write a traceback, by time.monotonic(); 0.0 if it never did.
        self._traceback = 0.0
        #: Time and CPU seconds of the last sample of `_usage`.
        self._sampled = (time.monotonic(), 0.0)
        if assignment.stdin >= 0:
            os.set_inheritable(assignment.stdin, False)  # no other rank holds it open
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        process = subprocess.Popen(
            assignment.command,
            env={**environment, **assignment.environment},
            cwd=assignment.directory or None,
            stdin=subprocess.DEVNULL if assignment.stdin < 0 else assignment.stdin,
            stdout=out_end,
            stderr=err_end,
            # MPI libraries talk to mpirun through an inherited descriptor (PMI_FD).
            close_fds=False,
            start_new_session=True,
            preexec_fn=functools.partial(_prepare, os.getpid(), assignment),
        )
        os.close(out_end)
        os.close(err_end)
        self.pid, self.pipes = process.pid, (out, err)
        process.returncode = 0  # The guard reaps all its children itself.
        for pipe, target in ((out, STDOUT), (err, STDERR)):
            loop.read_lines(pipe, functools.partial(self._take, target))
        self._say("start", pid=self.pid)

    def _take(self, target: int, line: bytes) -> None:
        """Write one line of the rank to its target; raises OSError if nobody reads it any more."""
        if text := line.rstrip().rpartition(b"\r")[2]:  # of a progress bar the last state
            self._last.append(text[:_LONGEST])
        if line.startswith(_TRACEBACK):
            self._traceback = time.monotonic()
            self._say("traceback")
        if self._log >= 0:
            write_all(self._log, line)
            return
        if target == STDERR:
            self._at_line_start = line.endswith(b"\n")
        write_all(target, line)

    def say_status(self) -> None:
        """Send CPU and memory of the rank's processes, and its last line."""
        seconds, memory = 0.0, 0
        with contextlib.suppress(psutil.NoSuchProcess):
            rank = psutil.Process(self.pid)
            for process in (rank, *rank.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    used = process.cpu_times()
                    seconds += used.user + used.system
                    memory += process.memory_info().rss
        at, before = self._sampled
        self._sampled = (time.monotonic(), seconds)
        # A process that has ended takes its CPU time with it.
        percent = 100 * max(0.0, seconds - before) / max(self._sampled[0] - at, 1e-3)
        last = self._last[-1].decode("utf-8", "replace")[:200] if self._last else ""
        self._say("status", percent=round(percent, 1), memory=memory, last=last)

    def say_end(self, code: int, ended: float, stopped: bool) -> None:
        """Send the last lines of a rank that failed, and how it ended.

        Of a traceback that is in the output already only the error is sent.
        """
        self._loop.drain(self.pipes)
        if code and not stopped:
            last = list(self._last)
            if self._log < 0 and any(line.startswith(_TRACEBACK) for line in last):
                last = last[-1:]
            for line in last:
                self._write(Message.of_line(self.assignment.rank, line))
        # Python may take long to end after an exception, and other ranks fail in that time because of it.
        failed_at = self._traceback if code == 1 and self._traceback else ended
        self._say("end", code=code, age=time.monotonic() - failed_at, stopped=stopped)

    def left_behind(self, running: Collection[int]) -> set[int]:
        """Return what the rank left behind: orphans with its number in their environment, and what is below them."""
        found: set[int] = set()
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                number = self.assignment.environment.get("RANK")
                if child.pid not in running and child.environ().get("RANK") == number:
                    found |= {child.pid, *(process.pid for process in child.children(recursive=True))}
        return found

    def _say(self, kind: str, **values: Any) -> None:
        self._write(Message(kind, self.assignment.rank, values))

    def _write(self, message: Message) -> None:
        """Write a message to the launcher, at the start of a line; nothing if it no longer exists."""
        start = b"" if self._at_line_start else b"\n"
        self._at_line_start = True
        with contextlib.suppress(OSError):
            write_all(STDERR, start + message.encode(self.assignment.token))


class Guard:
    """Runs some ranks."""

    def __init__(self, assignments: Sequence[Assignment], environment: Mapping[str, str]) -> None:
        self._assignments, self._environment = assignments, environment
        self._grace = min(assignment.grace for assignment in assignments)
        self._loop = Loop()
        self._running: dict[int, RankProcess] = {}
        self._code = 0
        self._stopping = False
        #: Ranks that a signal to stop has been passed on to.
        self._stopped = set[int]()
        self._deadline = float("inf")

    def run(self) -> int:
        """Run the ranks to their end; returns the first exit code that is not 0, 128 + its number for a signal."""
        adopt_orphans()
        self._loop.receive((*STOPPING, *PASSED_ON), self._received)
        with contextlib.suppress(PermissionError):  # epoll's answer for a file, which has no end
            self._loop.read_lines(_PARENT_PIPE, lambda line: None, self._orphaned)
        affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        for assignment in self._assignments:
            self._start(assignment, assignment.cpus or affinity)
        bind_cpus(affinity)
        if self._stopping:  # A signal came before there was a process to pass it on to.
            send(signal.SIGTERM, [-pid for pid in self._running if pid not in self._stopped])
        next_status = time.monotonic() + _STATUS
        while self._running:
            self._loop.wait()
            self._reap()
            now = time.monotonic()
            if now >= self._deadline:
                self._send(signal.SIGKILL)
            if now >= next_status:
                next_status = now + _STATUS
                for rank in self._running.values():
                    if rank.assignment.status:
                        rank.say_status()
        return self._code

    def _start(self, assignment: Assignment, cpus: Sequence[int]) -> None:
        """Start a rank on these CPUs; a failure is reported like one of the rank."""
        try:
            bind_cpus(cpus)
            rank = RankProcess(assignment, self._loop, self._environment)
            self._running[rank.pid] = rank
        except (AccelError, OSError) as error:
            text, code = f"cannot start {assignment.command[0]}: {error}", _CANNOT_START
            if isinstance(error, AccelError):
                text, code = str(error), 1
            self._code = self._code or report_failure(assignment.token, assignment.rank, text, code)

    def _send(self, number: int) -> None:
        """Send a signal to the process group of each rank."""
        send(number, [-pid for pid in self._running])

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            # Ctrl-C a second time: at once.
            again = self._stopping and number == signal.SIGINT
            self._stop_within(0.0 if again else self._grace)
            self._stopped.update(self._running)
        self._send(number)

    def _orphaned(self) -> None:
        self._stop_within(min(ORPHAN_GRACE, self._grace))
        self._send(signal.SIGTERM)

    def _stop_within(self, grace: float) -> None:
        self._stopping = True
        self._deadline = min(self._deadline, time.monotonic() + grace)

    def _reap(self) -> None:
        """Reap the children that have ended, and end what ranks among them left behind."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if rank := self._running.pop(found[0], None):
                    code = os.waitstatus_to_exitcode(found[1])
                    rank.say_end(code, time.monotonic(), self._stopping)
                    self._code = self._code or shell_code(code)
                    rest = (
                        functools.partial(rank.left_behind, self._running) if self._running else descendants
                    )
                    end_processes(min(REST_GRACE, self._grace), rest)
                    self._loop.drain(rank.pipes)


def _prepare(guard: int, assignment: Assignment) -> None:
    """In a rank before its program: end with the guard, and take memory from the nodes of the plan."""
    signal_on_parent_end(signal.SIGKILL, guard)
    if refused := bind_memory(assignment.memory_mode, assignment.memory_nodes):
        nodes = ",".join(map(str, assignment.memory_nodes))
        say(f"rank {assignment.rank}: no memory policy for NUMA node {nodes}: {refused}")


def main() -> int:
    """Run ranks of this host; returns their exit code.

    Without arguments the launcher on this host assigns them. An engine starts a guard for each rank, and names the
    variables that say which it is. pdsh starts one on each host.
    """
    parser = argparse.ArgumentParser(prog="accel_launch.guard")
    parser.add_argument("--rank-from", help="variable with the global rank")
    parser.add_argument("--local-rank-from", help="variable with the rank on this host")
    parser.add_argument(
        "--host", nargs=2, help="host of the job, and the file with the text of `Job.to_text`"
    )
    given = parser.parse_args()
    if given.rank_from:
        return engine_worker(int(os.environ[given.rank_from]), int(os.environ[given.local_rank_from]))
    if given.host:
        return host_worker(*given.host)
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return 1  # The launcher ended before it had said what to do.
        line += data
    return Guard([Assignment(**each) for each in json.loads(line)], os.environ).run()


def host_worker(name: str, path: str) -> int:
    """Run the ranks of this host for a launcher on another; returns their exit code."""
    from accel_launch.job import Job  # not needed where the launcher assigns the ranks

    job = Job.from_text(_read_once(path))
    # pdsh leaves out the user of `user@host`.
    host = next(host for host in job.plan.hosts if host.name.rpartition("@")[2] == name)
    try:
        assignments = job.assignments(host.node_rank)
    except AccelError as error:
        return report_failure(job.token, host.ranks[0].rank, str(error), 1)
    return Guard(assignments, os.environ).run()


def _read_once(path: str) -> str:
    """Return the text of a file that the launcher has written, and remove it; raises OSError if it is another's."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        os.unlink(path)
        return file.read()


def engine_worker(rank: int, local_rank: int) -> int:
    """Run one rank for mpirun or srun; returns its exit code.

    Engines end their processes with SIGKILL. The process that the engine knows therefore only passes signals on to a
    second one, the guard, whose parent pipe ends with it.
    """
    signal_on_parent_end(signal.SIGTERM, os.getppid())
    parent_pipe, kept = os.pipe()
    pid = os.fork()
    if pid:
        os.close(parent_pipe)
        for number in (*STOPPING, *PASSED_ON):
            signal.signal(number, lambda received, _: send(received, (pid,)))
        return shell_code(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(kept)
    os.setsid()
    os.dup2(parent_pipe, 0)
    os.close(parent_pipe)
    from accel_launch.job import VARIABLE, Job

    job = Job.from_environment(os.environ)
    try:
        assignment = job.placed(rank, local_rank)
    except AccelError as error:
        return report_failure(job.token, rank, str(error), 1)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE)}
    return Guard([assignment], environment).run()
