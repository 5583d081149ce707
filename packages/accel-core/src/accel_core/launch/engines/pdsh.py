# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""pdsh: ssh to each host of the plan, where an agent runs the host's ranks.

pdsh passes no standard input on, so that the job travels in the command line of ssh, as with deepspeed. The
connection's standard input is the agent's lifeline: it ends with pdsh.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from accel_core.launch import entry
from accel_core.launch.engine_errors import EngineRefused
from accel_core.launch.engines.engine import find_program, of_command
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import View

#: Linux limits one argument, here the whole remote command, to 128 KiB.
_LONGEST = 120_000
#: Without these the agent's Python may not start; the plan's variables come later.
_PYTHON = ("PYTHONPATH", "LD_LIBRARY_PATH")
_MOST_HOSTS = 1024
_EXITED = re.compile(rb"pdsh@[^:]*: ([^:\s]+): .*exited with exit code (\d+)")


class Pdsh:
    """Starts an agent on each host."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable without pdsh and ssh, EngineRefused for a plan that is too long."""
        self._program()
        if bracketed := next((host.name for host in plan.hosts if "[" in host.name), None):
            raise EngineRefused(
                what="pdsh cannot connect to an IPv6 address",
                found=f"the host {bracketed}; pdsh takes brackets for a range of names",
                expected="host names, or IPv4 addresses",
                do="name the host in ~/.ssh/config, and use that name in the hostfile",
            )
        if os.environ.get("PDSH_RCMD_TYPE", "ssh") == "ssh":
            find_program(("ssh",), "pdsh over ssh", "apt install openssh-client")
        length = len(remote_command(Job(plan), options))
        if length > _LONGEST:
            raise EngineRefused(
                what="the plan is too long for pdsh",
                found=f"a remote command of {length:,} characters, for {plan.world_size} ranks",
                expected=f"at most {_LONGEST:,}, as Linux limits an argument",
                do="use --launcher impi, mpich, openmpi or slurm",
            )

    def _program(self) -> str:
        return find_program(("pdsh",), "pdsh", "apt install pdsh")

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return a supervisor of pdsh."""
        environment = {"PDSH_RCMD_TYPE": os.environ.get("PDSH_RCMD_TYPE", "ssh")}
        if options.ssh_port is not None:
            former = os.environ.get("PDSH_SSH_ARGS_APPEND", "")
            environment["PDSH_SSH_ARGS_APPEND"] = f"{former} -p {options.ssh_port}".strip()
        command = [
            self._program(),
            # -S: the highest exit code of the agents; -N: lines without the host's name ahead of them.
            *("-S", "-N", "-f", str(_MOST_HOSTS)),
            *("-w", ",".join(host.name for host in job.plan.hosts)),
            *options.launcher_args,
            remote_command(job, options),
        ]
        return of_command(job, command, view, environment, lost_host)


def lost_host(line: bytes) -> tuple[str, int] | None:
    """Return the host and the exit code of an ssh that failed, if pdsh says so on this line; pdsh itself waits on."""
    found = _EXITED.match(line)
    return (found[1].decode(), int(found[2])) if found else None


def remote_command(job: Job, options: Options) -> str:
    """Return the command line for the shell of the other hosts; pdsh replaces `%h` by the host's name."""
    words = [f"{name}={os.environ[name]}" for name in _PYTHON if os.environ.get(name)]
    quoted = [shlex.quote(word) for word in ("env", *words, *entry.AGENT)]
    source = f". {shlex.quote(options.venv_script)} && " if options.venv_script else ""
    before = source + "exec " + " ".join(quoted)
    return f"{before.replace('%', '%%')} %h {job.to_text()}"
