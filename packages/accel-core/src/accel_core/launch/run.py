# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan: chooses the engine, checks what it needs, and waits for the ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from accel_core.launch import gather, port
from accel_core.launch.engine_errors import EngineRefused, LogUnwritable
from accel_core.launch.engines import registry
from accel_core.launch.engines.engine import Engine
from accel_core.launch.engines.local import Local, NoSsh
from accel_core.launch.folder import temporary_folder
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.failure import described, shell_code
from accel_core.launch.supervise.lines import write_all
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import STDERR, Plain, View


def run(plan: Plan, options: Options) -> int:
    """Run the job; returns the launcher's exit code. Raises an AccelError only before anything was started."""
    engine = registry.choose(plan, options)
    engine.check(plan, options)
    if options.elastic_training and not isinstance(engine, (Local, NoSsh)):
        raise _not_elastic(plan)
    if isinstance(engine, Local) and port.is_free_to_choose(plan, options):
        with port.chosen(plan, options) as moved:
            return _carried_out(engine, moved, options)
    if gather.is_this_host(plan.hosts[0].name) and not (options.no_ssh and options.node_rank):
        port.check(plan.master_port)
    return _carried_out(engine, plan, options)


def _carried_out(engine: Engine, plan: Plan, options: Options) -> int:
    logs = _logs(options.enable_each_rank_log)
    view, live = _view(plan, options)
    job = Job(plan, logs=logs, status=live)
    with (
        _pid_file(options.save_pid),
        temporary_folder() as folder,
        contextlib.closing(view),
    ):
        if options.elastic_training:
            from accel_core.launch import elastic  # imports torch

            supervisor = elastic.run(job, options, max(options.node_rank, 0), view)
        else:
            supervisor = engine.supervisor(job, options, view, folder)
            supervisor.run()
    code, report = outcome(supervisor)
    if supervisor.output_error is not None:
        lost = f"the ranks' output cannot be written: {supervisor.output_error.strerror}"
        code, report = code or 1, "; ".join(filter(None, (lost, report)))
    if report:
        with contextlib.suppress(OSError):
            write_all(STDERR, f"accel launch: {report}\n".encode())
    return code


def outcome(supervisor: Supervisor) -> tuple[int, str]:
    """Return the launcher's exit code, and why it is not 0."""
    ends, stopped_by = supervisor.ends, supervisor.stopped_by
    if report := ends.report():
        return ends.exit_code(stopped_by), report
    if stopped_by is not None:
        return ends.exit_code(stopped_by), f"stopped by {signal.Signals(stopped_by).name}"
    silent = [rank for rank in ends.hosts if rank not in ends.ended]
    engine_code = supervisor.engine_code
    if engine_code is not None and (engine_code or silent):
        ranks = f"; no end was reported of {len(silent)} of {len(ends.hosts)} ranks" if silent else ""
        return shell_code(engine_code) or 1, f"the engine's command {described(engine_code)}{ranks}"
    return ends.exit_code(None), ""


def _view(plan: Plan, options: Options) -> tuple[View, bool]:
    """Return the view, and whether the guards have to send their status."""
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    if options.quiet or not terminal or os.environ.get("TERM", "dumb") == "dumb":
        return Plain(), False
    from accel_core.launch.live import LiveView  # rich takes a tenth of a second to import

    return LiveView(plan), True


def _logs(folder: str | None) -> str:
    """Return the absolute path of the folder for logs, which exists now; empty: none."""
    if folder is None:
        return ""
    if not folder:
        raise _unwritable("an empty name")
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise _unwritable(f"{path}: {error.strerror}") from error
    return str(path)


def _unwritable(found: str) -> LogUnwritable:
    return LogUnwritable(
        what="cannot write the ranks' logs",
        found=found,
        expected="a folder that you may write to, or that can be made",
        do="give --enable_each_rank_log another folder",
    )


def _not_elastic(plan: Plan) -> EngineRefused:
    return EngineRefused(
        what="--elastic_training cannot be used with an engine that starts all hosts at once",
        found=f"a plan for {len(plan.hosts)} hosts, or a --launcher other than local",
        expected="hosts that come and go on their own",
        do="run the command on each host, with --no_ssh and its --node_rank",
    )


@contextlib.contextmanager
def _pid_file(wanted: bool) -> Iterator[None]:
    """Write the launcher's pid to the file that deepspeed's `--save_pid` writes, as long as the job runs."""
    if not wanted:
        yield
        return
    path = Path(tempfile.gettempdir(), f"{os.getpid()}.deepspeed")
    try:
        # Not through a link that another user has laid there.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError as error:
        raise LogUnwritable(
            what="cannot write the launcher's pid",
            found=f"{path}: {error.strerror}",
            expected="a file that does not exist yet",
            do="remove it, or leave out --save_pid",
        ) from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(str(os.getpid()))
        write_all(1, f"launcher pid: {os.getpid()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
