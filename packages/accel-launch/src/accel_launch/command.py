# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel launch --num_accelerators 2 train.py`: start the ranks of a job, each on its own cores."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from accel_core.api import CURRENT
from accel_launch import engines, planning, ssh
from accel_launch.engines import Local
from accel_launch.errors import PortInUse
from accel_launch.job import Job
from accel_launch.options import DEFAULT_PORT, Options, add_arguments, parsed
from accel_launch.plan import Plan
from accel_launch.protocol import STDOUT, say, write_all
from accel_launch.supervisor import View

__all__ = ["add_arguments", "run"]

#: Ports that are tried one after the other; after them any free one.
_TRIED = range(DEFAULT_PORT, DEFAULT_PORT + 100)


def carry_out(plan: Plan, options: Options) -> int:
    """Run the job; returns the launcher's exit code. Raises an AccelError only before anything was started."""
    engine = engines.choose(plan, options)
    engine.check(plan, options)
    local = isinstance(engine, Local)
    with contextlib.ExitStack() as stack:
        if local and not options.no_ssh and is_port_free_to_choose(plan, options):
            plan = stack.enter_context(chosen_port(plan, options))
        elif ssh.is_this_host(plan.hosts[0].name) and not (options.no_ssh and options.node_rank):
            check_port(plan.master_port)
        view, live = _view(plan, options)
        stack.enter_context(contextlib.closing(view))
        logs = options.enable_each_rank_log
        job = Job(plan, logs=os.path.abspath(logs) if logs else "", status=live)
        if options.save_pid:
            stack.enter_context(_pid_file())
        supervisor = engine.supervisor(job, options, view)
        supervisor.run()
    code, report = supervisor.ends.outcome(supervisor.stopped_by, supervisor.engine_code)
    if supervisor.output_error is not None:
        lost = f"the ranks' output cannot be written: {supervisor.output_error.strerror}"
        code, report = code or 1, "; ".join(filter(None, (lost, report)))
    if report:
        say(report)
    return code


def _view(plan: Plan, options: Options) -> tuple[View, bool]:
    """Return the view, and whether the guards have to send their status."""
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    if options.quiet or not terminal or os.environ.get("TERM", "dumb") == "dumb":
        return View(), False
    from accel_launch.live import LiveView  # rich takes a tenth of a second to import

    return LiveView(plan), True


@contextlib.contextmanager
def _pid_file() -> Iterator[None]:
    """Write the launcher's pid to the file that deepspeed's `--save_pid` writes, as long as the job runs."""
    path = Path(tempfile.gettempdir(), f"{os.getpid()}.deepspeed")
    path.unlink(missing_ok=True)
    try:
        with path.open("x") as file:  # not through a link that another user has put there
            file.write(str(os.getpid()))
        write_all(STDOUT, f"launcher pid: {os.getpid()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)


def is_port_free_to_choose(plan: Plan, options: Options) -> bool:
    """Return True if nobody has named a port."""
    given = options.master_port is not None or options.plan is not None
    return not given and plan.master_port == DEFAULT_PORT


@contextlib.contextmanager
def chosen_port(plan: Plan, options: Options) -> Iterator[Plan]:
    """Yield the plan with a port that no other job of this host has, as long as the block runs."""
    with socket.socket() as held:
        for tried in (*_TRIED, 0):
            with contextlib.suppress(OSError):
                held.bind(("", tried))
                break
        number = int(held.getsockname()[1])
        # Rank 0 listens seconds from now. Until then this socket keeps other launchers away: they bind without
        # SO_REUSEADDR. torch's store binds with it, which the kernel permits as long as nobody listens.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if number != DEFAULT_PORT and options.shows_notes:
            say(f"port {DEFAULT_PORT} is in use, so rank 0 listens on port {number}")
        yield plan if number == DEFAULT_PORT else replace(plan, master_port=number)


def check_port(port: int) -> None:
    """Raise PortInUse if rank 0 could not listen on the port; 0 stands for any."""
    with socket.socket() as trial:
        # As torch's store does: a port that a former job has left is free.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
            return
        except OSError as error:
            reason = error.strerror
    with socket.socket() as other:
        other.bind(("", 0))
        free = other.getsockname()[1]
    raise PortInUse(
        f"rank 0 cannot listen on the master port {port}: {reason}; another job on this host, or what "
        "is left of one",
        do=f"give a free one, such as --master_port {free}, or end the other process",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan or the job of a command line, or carry it out; returns the exit status.

    Raises the errors of `accel_launch.errors`.
    """
    _open_standard_streams()
    given = parsed(args)
    prints = given.emit is not None or given.dry_run
    with contextlib.nullcontext() if prints else CURRENT.quiet():
        plan = planning.load_plan(given) if given.plan else planning.make_plan(given)
    if prints:
        _print(plan, given)
        return 0
    for note in plan.notes if given.shows_notes else ():
        say(note)
    return carry_out(plan, given)


def _open_standard_streams() -> None:
    """Open /dev/null in place of a standard stream that the caller has closed: other files would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _print(plan: Plan, given: Options) -> None:
    # Imported here: a job that is started at once shall not wait for rich.
    from accel_launch import emit

    if (given.emit or given.json) and (names := plan.secrets()):
        where = "a Secret" if given.emit == "k8s" else "this output"
        say(f"{where} has what looks like secrets: {', '.join(names)}")
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
                os.fchmod(sys.stdout.fileno(), 0o600)
    if given.emit:
        sys.stdout.write(emit.render(plan, given))
    else:
        sys.stdout.write(plan.to_json() + "\n" if given.json else emit.table(plan))
