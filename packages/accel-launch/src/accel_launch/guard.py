# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The guard of one rank: the process that every engine starts for it. It binds itself, runs the rank, and guards it.

It is the rank's parent: it passes on output and signals, and leaves nothing behind. The rank leads a session and
process group of its own, and everything that it starts stays below the guard (`adopt_orphans`). The guard ends when the
rank has ended. It ends the rank when its own standard input, the parent pipe, ends: then the launcher or its agent no
longer exists. If the guard is killed, the kernel kills the rank.

Its supervisor on the same host writes the assignment to the parent pipe. Under mpirun and srun, with
`--rank-from VARIABLE`, the job is in the environment and the engine says which rank this is (`mpi_worker`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import functools
import json
import os
import platform
import signal
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from accel_core.errors import AccelError
from accel_launch.errors import BindingRefused, LogUnwritable
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
    end_descendants,
    process_fields,
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
    """Restrict this process to the CPUs; none: no restriction. Raises BindingRefused."""
    if not cpus:
        return
    found, affinity = f"{sys.platform} has no CPU affinity", set[int]()
    if hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, cpus)
            found = ""
        except OSError as error:
            found = f"sched_setaffinity: {error.strerror}"
        affinity = os.sched_getaffinity(0)
        if not found and (missing := sorted(set(cpus) - affinity)):
            found = f"the kernel left out {', '.join(map(str, missing))}"
    if found:
        raise BindingRefused(
            f"cannot bind this rank to the CPUs {', '.join(map(str, cpus))}: {found}; expected CPUs that "
            f"are online and in this process's cpuset; its affinity is {sorted(affinity)}",
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
    many = mode == "preferred" and len(nodes) > 1
    error = _set_mempolicy(call, _PREFERRED_MANY if many else _MODES[mode], nodes)
    if error == errno.EINVAL and many:
        error = _set_mempolicy(call, _MODES[mode], nodes[:1])
    return f"set_mempolicy: {os.strerror(error)}" if error else ""


def _set_mempolicy(call: int, mode: int, nodes: Sequence[int]) -> int:
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    words = max(nodes) // bits + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // bits] |= 1 << (node % bits)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is given.
    size = ctypes.c_ulong(words * bits + 1)
    failed = libc.syscall(ctypes.c_long(call), ctypes.c_int(mode), mask, size)
    return ctypes.get_errno() if failed else 0


_LAST_LINES, _LONGEST = 20, 1000
_TRACEBACK = b"Traceback (most recent call last)"


def open_log(path: Path) -> int:
    """Open a log for appending: a file of this user, no link, pipe or device that somebody has put there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o644)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
        reason = "it is no file of yours"
    except OSError as error:
        reason = str(error.strerror)
    raise LogUnwritable(
        f"cannot write the log of a rank: {path}: {reason}",
        do="give --enable_each_rank_log a folder that only you can write to",
    )


#: Seconds for a rank without launcher, for an engine's command without launcher, and for what a rank leaves behind.
#: They follow each other where mpirun has to reach another host; after 10 s all has ended.
ORPHAN_GRACE, ENGINE_GRACE, REST_GRACE = 3.0, 1.0, 1.0
_PARENT_PIPE, _STATUS, _CANNOT_START = 0, 1.0, 127


class Guard:
    """Runs the command of one assignment."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._loop = Loop()
        self._log = open_log(Path(assignment.log)) if assignment.log else -1
        self._at_line_start = {STDOUT: True, STDERR: True}
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        #: When the rank last began to write a traceback, by time.monotonic(); 0.0 if it never did.
        self._traceback = 0.0
        #: Time and CPU seconds of the last sample of `_usage`.
        self._sampled = (time.monotonic(), 0.0)
        self._pid = 0
        self._stopping = False
        self._deadline = float("inf")

    def run(self, environment: Mapping[str, str]) -> int:
        """Run the rank to its end; returns its exit code, or 128 + the number of the signal that killed it.

        Raises OSError if the program cannot be started.
        """
        adopt_orphans()
        with self._loop.receiving((*STOPPING, *PASSED_ON), self._received):
            self._loop.call_at_end(_PARENT_PIPE, self._orphaned)
            self._start(environment)
            code = os.waitstatus_to_exitcode(self._watch())
            ended, stopped = time.monotonic(), self._stopping
            self._loop.drain()
            self._report(code, ended, stopped)
            end_descendants(min(REST_GRACE, self._assignment.grace))
            self._loop.drain()
        return shell_code(code)

    def _start(self, environment: Mapping[str, str]) -> None:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        stdin = self._assignment.stdin
        process = subprocess.Popen(
            self._assignment.command,
            env={**environment, **self._assignment.environment},
            cwd=self._assignment.directory or None,
            stdin=subprocess.DEVNULL if stdin < 0 else stdin,
            stdout=out_end,
            stderr=err_end,
            # MPI libraries talk to mpirun through an inherited descriptor (PMI_FD).
            close_fds=False,
            start_new_session=True,
            preexec_fn=functools.partial(_end_with, os.getpid()),
        )
        os.close(out_end)
        os.close(err_end)
        self._loop.read_lines(out, functools.partial(self._take, STDOUT))
        self._loop.read_lines(err, functools.partial(self._take, STDERR))
        self._pid = process.pid
        process.returncode = 0  # The guard reaps all its children itself.
        self._say("start", pid=process.pid)
        if self._stopping:  # A signal came before there was a process to pass it on to.
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        """Send a signal to the rank's process group."""
        if self._pid:
            send(number, (-self._pid,))

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            # Ctrl-C a second time: at once.
            again = self._stopping and number == signal.SIGINT
            self._stop_within(0.0 if again else self._assignment.grace)
        self._send(number)

    def _orphaned(self) -> None:
        grace = ENGINE_GRACE if self._assignment.rank < 0 else ORPHAN_GRACE
        self._stop_within(min(grace, self._assignment.grace))
        self._send(signal.SIGTERM)

    def _stop_within(self, grace: float) -> None:
        self._stopping = True
        self._deadline = min(self._deadline, time.monotonic() + grace)

    def _watch(self) -> int:
        """Return the rank's wait status when it has ended."""
        next_status = time.monotonic() + _STATUS
        while (status := self._reaped()) is None:
            self._loop.wait()
            now = time.monotonic()
            if now >= self._deadline:
                self._send(signal.SIGKILL)
            if self._assignment.status and now >= next_status:
                next_status = now + _STATUS
                last = self._last[-1].decode("utf-8", "replace")[:200] if self._last else ""
                self._say("status", **self._usage(), last=last)
        return status

    def _reaped(self) -> int | None:
        """Reap the children that have ended; returns the status of the rank if it is one of them."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == self._pid:
                return status
            if not pid:
                return None

    def _usage(self) -> dict[str, float]:
        """Return `percent` of one CPU since the last sample, and `memory`, resident bytes, of the rank's processes."""
        seconds, memory = 0.0, 0
        for fields in filter(None, map(process_fields, descendants(os.getpid()))):
            # Fields 14, 15 and 24 of proc(5): user time, system time, resident pages.
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        at, before = self._sampled
        self._sampled = (time.monotonic(), seconds)
        # A process that has ended takes its CPU time with it.
        used = max(0.0, seconds - before) / max(self._sampled[0] - at, 1e-3)
        return {"percent": round(100 * used, 1), "memory": memory}

    def _take(self, target: int, line: bytes) -> None:
        """Write one line of the rank to its target; raises OSError if nobody reads it any more."""
        if text := line.rstrip().rpartition(b"\r")[2]:  # of a progress bar the last state
            self._last.append(text[:_LONGEST])
        if line.startswith(_TRACEBACK):
            self._traceback = time.monotonic()
            self._say("traceback")
        self._at_line_start[target] = line.endswith(b"\n")
        write_all(target if self._log < 0 else self._log, line)

    def _report(self, code: int, ended: float, stopped: bool) -> None:
        """Send the last lines of a rank that failed, and how it ended.

        Of a traceback that is in the output already only the error is sent.
        """
        if code and not stopped:
            last = list(self._last)
            if self._log < 0 and any(line.startswith(_TRACEBACK) for line in last):
                last = last[-1:]
            for line in last:
                self._write(Message.of_line(self._assignment.rank, line))
        # Python may take long to end after an exception, and other ranks fail meanwhile because of it.
        failed_at = self._traceback if code == 1 and self._traceback else ended
        self._say("end", code=code, age=time.monotonic() - failed_at, stopped=stopped)

    def _say(self, kind: str, **values: Any) -> None:
        self._write(Message(kind, self._assignment.rank, values))

    def _write(self, message: Message) -> None:
        """Write a message to the launcher, at the start of a line; nothing if it no longer exists."""
        line = message.encode(self._assignment.token)
        if not self._at_line_start[STDERR] and self._log < 0:
            line = b"\n" + line
            self._at_line_start[STDERR] = True
        with contextlib.suppress(OSError):
            write_all(STDERR, line)


def _end_with(guard: int) -> None:
    signal_on_parent_end(signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(128 + signal.SIGKILL)


def main() -> int:
    """Run one rank; returns its exit code."""
    if len(sys.argv) > 1:
        return mpi_worker(sys.argv[1:])
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return 1  # The launcher ended before it had said what to do.
        line += data
    return run_rank(Assignment(**json.loads(line)), os.environ)


def run_rank(assignment: Assignment, environment: Mapping[str, str]) -> int:
    """Bind this process and run the rank; a failure before the rank starts is reported like one of the rank."""
    try:
        bind_cpus(assignment.cpus)
        if refused := bind_memory(assignment.memory_mode, assignment.memory_nodes):
            nodes = ",".join(map(str, assignment.memory_nodes))
            say(f"rank {assignment.rank}: no memory policy for NUMA node {nodes}: {refused}")
        return Guard(assignment).run(environment)
    except AccelError as error:
        return report_failure(assignment.token, assignment.rank, str(error), 1)
    except OSError as error:
        text = f"cannot start {assignment.command[0]}: {error}"
        return report_failure(assignment.token, assignment.rank, text, _CANNOT_START)


def mpi_worker(arguments: Sequence[str]) -> int:
    """Run the rank that the variables of mpirun or srun name; returns its exit code.

    Engines end their processes with SIGKILL. The process that the engine knows therefore only passes signals on to a
    second one, the guard, whose parent pipe ends with it.
    """
    parser = argparse.ArgumentParser(prog="accel_launch.guard")
    parser.add_argument("--rank-from", required=True, help="variable with the global rank")
    parser.add_argument("--local-rank-from", required=True, help="variable with the rank on this host")
    names = parser.parse_args(arguments)
    rank, local_rank = int(os.environ[names.rank_from]), int(os.environ[names.local_rank_from])
    signal_on_parent_end(signal.SIGTERM)
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
    from accel_launch.job import VARIABLE, Job  # not needed where a supervisor assigns the rank

    job = Job.from_environment(os.environ)
    try:
        assignment = job.placed(rank, local_rank)
    except AccelError as error:
        return report_failure(job.token, rank, str(error), 1)
    return run_rank(
        assignment, {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE)}
    )
