# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""pdsh: ssh to each host of the plan, where an agent runs the host's ranks.

pdsh passes no standard input on, and other users read command lines: the job, with the variables for the ranks, goes
ahead by ssh to a file of each host that its agent reads and removes. The connection's standard input is the agent's
lifeline: it ends with pdsh.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from pathlib import Path

from accel_core.launch import entry, gather
from accel_core.launch.engine_errors import EngineRefused
from accel_core.launch.engines.engine import find_program, of_command
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import View

#: Without these the agent's Python may not start; the plan's variables come later.
_PYTHON = ("PYTHONPATH", "LD_LIBRARY_PATH")
_MOST_HOSTS = 1024
_EXITED = re.compile(rb"pdsh@[^:]*: ([^:\s]+): .*exited with exit code (\d+)")


class Pdsh:
    """Starts an agent on each host."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable without pdsh and ssh, EngineRefused for an IPv6 address."""
        self._program()
        if bracketed := next((host.name for host in plan.hosts if "[" in host.name), None):
            raise EngineRefused(
                what="pdsh cannot connect to an IPv6 address",
                found=f"the host {bracketed}; pdsh takes brackets for a range of names",
                expected="host names, or IPv4 addresses",
                do="name the host in ~/.ssh/config, and use that name in the hostfile",
            )
        find_program(("ssh",), "pdsh over ssh", "apt install openssh-client")

    def _program(self) -> str:
        return find_program(("pdsh",), "pdsh", "apt install pdsh")

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return a supervisor of pdsh."""
        environment = {"PDSH_RCMD_TYPE": "ssh"}
        if options.ssh_port is not None:
            former = os.environ.get("PDSH_SSH_ARGS_APPEND", "")
            environment["PDSH_SSH_ARGS_APPEND"] = f"{former} -p {options.ssh_port}".strip()
        # Names end in the host's: hosts may share the folder. The agent takes the file with %h.
        path = f"/tmp/accel-job-{secrets.token_hex(16)}-"
        names = {host.name: path + host.name.rpartition("@")[2] for host in job.plan.hosts}
        gather.write(names, options, job.to_text())
        command = [
            self._program(),
            # -S: the highest exit code of the agents; -N: lines without the host's name ahead of them.
            *("-S", "-N", "-f", str(_MOST_HOSTS)),
            *("-w", ",".join(host.name for host in job.plan.hosts)),
            *options.launcher_args,
            remote_command(path, options),
        ]
        return of_command(job, command, view, environment, lost_host)


def lost_host(line: bytes) -> tuple[str, int] | None:
    """Return the host and the exit code of an ssh that failed, if pdsh says so on this line; pdsh itself waits on."""
    found = _EXITED.match(line)
    return (found[1].decode(), int(found[2])) if found else None


def remote_command(path: str, options: Options) -> str:
    """Return the command line for the shell of the other hosts; pdsh replaces `%h` by the host's name."""
    words = [f"{name}={os.environ[name]}" for name in _PYTHON if os.environ.get(name)]
    quoted = [shlex.quote(word) for word in ("env", *words, *entry.AGENT)]
    source = f". {shlex.quote(options.venv_script)} && " if options.venv_script else ""
    before = source + "exec " + " ".join(quoted)
    return f"{before.replace('%', '%%')} %h {path}%h"
