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
import os
import platform
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
    Lines,
    adopt_orphans,
    descendants,
    encode_line,
    encode_message,
    end_descendants,
    has_ended,
    receiving,
    report_failure,
    send_group,
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
    if not hasattr(os, "sched_setaffinity"):
        raise _refused(f"{sys.platform} has no CPU affinity", cpus)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise _refused(f"sched_setaffinity: {error.strerror}", cpus) from error
    if missing := sorted(set(cpus) - os.sched_getaffinity(0)):
        raise _refused(f"the kernel left out {', '.join(map(str, missing))}", cpus)


def _refused(found: str, cpus: Sequence[int]) -> BindingRefused:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return BindingRefused(
        what=f"cannot bind this rank to the CPUs {', '.join(map(str, cpus))}",
        found=found,
        expected=f"CPUs that are online and in this process's cpuset; its affinity is {allowed}",
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
    number = _MODES[mode] if mode == "bind" or len(nodes) == 1 else _PREFERRED_MANY
    error = _set_mempolicy(call, number, nodes)
    if error == errno.EINVAL and number == _PREFERRED_MANY:
        error = _set_mempolicy(call, _MODES["preferred"], nodes[:1])
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


_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Usage:
    """Use of everything below this process between two samples."""

    def __init__(self) -> None:
        self._at, self._seconds = time.monotonic(), 0.0

    def sample(self) -> dict[str, float]:
        """Return `percent` of one CPU since the last sample, and `memory`, resident bytes."""
        seconds, memory = 0.0, 0
        for pid in descendants(os.getpid()):
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            # Fields 14, 15 and 24 of proc(5): user time, system time, resident pages.
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
            memory += int(fields[21]) * _PAGE
        now = time.monotonic()
        # A process that has ended takes its CPU time with it.
        used = max(0.0, seconds - self._seconds) / max(now - self._at, 1e-3)
        self._at, self._seconds = now, seconds
        return {"percent": round(100 * used, 1), "memory": memory}


_LAST_LINES = 20
_LONGEST = 1000
_TRACEBACK = b"Traceback (most recent call last)"


class Output:
    """Two pipes for a rank to write to.

    log: file for the output; empty: this process's own standard output and error. on_traceback: called when the rank
    begins to write a traceback.
    """

    def __init__(self, log: str, on_traceback: Callable[[], None]) -> None:
        self.on_traceback = on_traceback
        self._log = -1
        if log:
            self._log = _opened(Path(log))
        self._at_line_start = {STDOUT: True, STDERR: True}
        self.last: deque[bytes] = deque(maxlen=_LAST_LINES)
        #: When the rank last began to write a traceback, by time.monotonic(); 0.0 if it never did.
        self.traceback = 0.0
        (out, self.out), (err, self.err) = os.pipe(), os.pipe()
        self.streams = [
            Lines(out, lambda line: self.take(STDOUT, line)),
            Lines(err, lambda line: self.take(STDERR, line)),
        ]

    def close_writing(self) -> None:
        """Close the writing ends, which the rank has now."""
        os.close(self.out)
        os.close(self.err)

    def take(self, target: int, line: bytes) -> None:
        """Write one line to its target; raises OSError if nobody reads it any more."""
        if text := line.rstrip().rpartition(b"\r")[2]:  # of a progress bar the last state
            self.last.append(text[:_LONGEST])
        if line.startswith(_TRACEBACK):
            self.traceback = time.monotonic()
            self.on_traceback()
        self._at_line_start[target] = line.endswith(b"\n")
        write_all(target if self._log < 0 else self._log, line)

    def unreported(self) -> list[bytes]:
        """Return the last lines for a report; of a traceback that is in the output already, only the error."""
        last = list(self.last)
        if self._log < 0 and any(line.startswith(_TRACEBACK) for line in last):
            return last[-1:]
        return last

    def message(self, line: bytes) -> None:
        """Write a message to the launcher, at the start of a line."""
        if not self._at_line_start[STDERR] and self._log < 0:
            line = b"\n" + line
            self._at_line_start[STDERR] = True
        try:
            write_all(STDERR, line)
        except OSError:  # The launcher no longer exists.
            pass


def _opened(path: Path) -> int:
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
        what="cannot write the log of a rank",
        found=f"{path}: {reason}",
        expected="a new file, or one of this user",
        do="give --enable_each_rank_log a folder that only you can write to",
    )


#: Seconds for a rank without launcher, for an engine's command without launcher, and for what a rank leaves behind.
#: They follow each other where mpirun has to reach another host; after 10 s all has ended.
ORPHAN_GRACE, ENGINE_GRACE, REST_GRACE = 3.0, 1.0, 1.0
_PARENT_PIPE = 0
_IDLE, _STATUS = 0.2, 1.0


class Guard:
    """Runs the command of one assignment."""

    def __init__(self, assignment: Assignment, environment: Mapping[str, str]) -> None:
        self._assignment = assignment
        self._environment = {**environment, **assignment.environment}
        self._output = Output(assignment.log, lambda: self._say("traceback"))
        self._selector = selectors.DefaultSelector()
        self._pid = 0
        self._stopping = False
        self._deadline = float("inf")

    def run(self) -> int:
        """Run the rank to its end; returns its exit code, or 128 + the number of the signal that killed it.

        Raises OSError if the program cannot be started.
        """
        adopt_orphans()
        with receiving((*STOPPING, *PASSED_ON), self._received, self._selector):
            self._selector.register(_PARENT_PIPE, selectors.EVENT_READ, self._read_parent_pipe)
            self._start()
            code = os.waitstatus_to_exitcode(self._watch())
            ended, stopped = time.monotonic(), self._stopping
            self._drain()
            self._report(code, ended, stopped)
            end_descendants(min(REST_GRACE, self._assignment.grace))
            self._drain()
        return code if code >= 0 else 128 - code

    def _start(self) -> None:
        stdin = self._assignment.stdin
        process = subprocess.Popen(
            list(self._assignment.command),
            env=self._environment,
            cwd=self._assignment.directory or None,
            stdin=subprocess.DEVNULL if stdin < 0 else stdin,
            stdout=self._output.out,
            stderr=self._output.err,
            # MPI libraries talk to mpirun through an inherited descriptor (PMI_FD).
            close_fds=False,
            start_new_session=True,
            preexec_fn=functools.partial(_end_with, os.getpid()),
        )
        self._output.close_writing()
        self._pid = process.pid
        process.returncode = 0  # The guard reaps all its children itself.
        self._say("start", pid=process.pid)
        if self._stopping:  # A signal came before there was a process to pass it on to.
            send_group(signal.SIGTERM, self._pid)

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            # Ctrl-C a second time: at once.
            again = self._stopping and number == signal.SIGINT
            self._stop_within(0.0 if again else self._assignment.grace)
        if self._pid:
            send_group(number, self._pid)

    def _read_parent_pipe(self) -> None:
        if not has_ended(_PARENT_PIPE):
            return
        self._selector.unregister(_PARENT_PIPE)
        grace = ENGINE_GRACE if self._assignment.rank < 0 else ORPHAN_GRACE
        self._stop_within(min(grace, self._assignment.grace))
        send_group(signal.SIGTERM, self._pid)

    def _stop_within(self, grace: float) -> None:
        self._stopping = True
        self._deadline = min(self._deadline, time.monotonic() + grace)

    def _watch(self) -> int:
        """Return the rank's wait status when it has ended."""
        for stream in self._output.streams:
            read = functools.partial(self._read, stream)
            self._selector.register(stream.descriptor, selectors.EVENT_READ, read)
        usage, next_status = Usage(), time.monotonic() + _STATUS
        while (status := self._reaped()) is None:
            ready = self._selector.select(_IDLE)
            for key, _ in ready:
                key.data()
            if not ready:
                for stream in self._output.streams:
                    stream.flush()
            now = time.monotonic()
            if now >= self._deadline:
                send_group(signal.SIGKILL, self._pid)
            if self._assignment.status and now >= next_status:
                next_status = now + _STATUS
                self._say("status", **usage.sample(), last=self._last_line())
        return status

    def _read(self, stream: Lines) -> None:
        if not stream.read():
            self._selector.unregister(stream.descriptor)
            self._output.streams.remove(stream)
            os.close(stream.descriptor)

    def _drain(self) -> None:
        for stream in self._output.streams:
            stream.drain()

    def _reaped(self) -> int | None:
        """Reap the children that have ended; returns the status of the rank if it is one of them."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == self._pid:
                return status
            if not pid:
                return None

    def _report(self, code: int, ended: float, stopped: bool) -> None:
        failed_at = ended
        if code == 1 and self._output.traceback:
            # Python may take long to end after an exception, and other ranks fail meanwhile because of it.
            failed_at = self._output.traceback
        if code and not stopped:
            for line in self._output.unreported():
                self._output.message(encode_line(self._assignment.token, self._assignment.rank, line))
        self._say("end", code=code, age=time.monotonic() - failed_at, stopped=stopped)

    def _say(self, kind: str, **values: Any) -> None:
        self._output.message(encode_message(self._assignment.token, kind, self._assignment.rank, **values))

    def _last_line(self) -> str:
        last = self._output.last
        return last[-1].decode("utf-8", "replace")[:200] if last else ""


def _end_with(guard: int) -> None:
    signal_on_parent_end(signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(128 + signal.SIGKILL)


_CANNOT_START = 127


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
    return run_rank(Assignment.from_line(line), os.environ)


def run_rank(assignment: Assignment, environment: Mapping[str, str]) -> int:
    """Bind this process and run the rank; a failure before the rank starts is reported like one of the rank."""
    try:
        bind_cpus(assignment.cpus)
        refused = bind_memory(assignment.memory_mode, assignment.memory_nodes)
        if refused:
            nodes = ",".join(map(str, assignment.memory_nodes))
            text = f"rank {assignment.rank}: no memory policy for NUMA node {nodes}: {refused}"
            with contextlib.suppress(OSError):
                write_all(STDERR, f"accel launch: {text}\n".encode())
        return Guard(assignment, environment).run()
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
        return _pass_signals_on(pid)
    os.close(kept)
    os.setsid()
    os.dup2(parent_pipe, 0)
    os.close(parent_pipe)
    from accel_launch.job import Job, is_job_variable  # not needed where a supervisor assigns the rank

    job = Job.from_environment(os.environ)
    try:
        assignment = job.placed(rank, local_rank)
    except AccelError as error:
        return report_failure(job.token, rank, str(error), 1)
    return run_rank(
        assignment, {name: value for name, value in os.environ.items() if not is_job_variable(name)}
    )


def _pass_signals_on(pid: int) -> int:
    def pass_on(number: int, _: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    for number in (*STOPPING, *PASSED_ON):
        signal.signal(number, pass_on)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
