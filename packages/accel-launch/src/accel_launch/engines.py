# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Engines: what starts the ranks of a plan on its hosts. Each carries out the same plan with the same guards.

Another package adds one by an entry point of the group `accel.launchers`: its name is that of `--launcher`, its object
an `Engine`. `GUARD`, `find_program` and `of_command` are for such packages, too.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Protocol

from accel_core.launchers import OPEN_MPI, PMI, SLURM, Launcher
from accel_core.processes import run
from accel_launch import ssh
from accel_launch.errors import EngineUnavailable, InvalidArguments
from accel_launch.job import Job
from accel_launch.options import Options
from accel_launch.plan import Plan
from accel_launch.protocol import GUARD
from accel_launch.supervisor import Supervisor, View

ENTRY_POINT_GROUP = "accel.launchers"
#: Without these the Python of a guard may not start; the plan's variables come later.
_PYTHON = ("PYTHONPATH", "LD_LIBRARY_PATH")


class Engine(Protocol):
    """Starts the ranks of a plan."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable or another AccelError if it cannot; starts no process of the job."""

    def supervisor(self, job: Job, options: Options, view: View) -> Supervisor:
        """Return the supervisor that starts the ranks of the job and waits for them."""


def find_program(names: Sequence[str], what: str, install: str) -> str:
    """Return the path of the first program that is on PATH; raises EngineUnavailable, with what to install."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise _unavailable(what, f"no {' or '.join(names)} on PATH", install)


def rank_options(launcher: Launcher) -> tuple[str, ...]:
    """Return the options of a guard that reads its rank from the launcher's variables."""
    return ("--rank-from", launcher.rank[0], "--local-rank-from", launcher.local_rank[0])


def _unavailable(what: str, found: str, install: str) -> EngineUnavailable:
    return EngineUnavailable(
        f"cannot start ranks with {what}: {found}", do=f"{install}, or choose another --launcher"
    )


#: Returns the supervisor of a job's command that starts the guards: `of_command(job, command, view, environment)`.
of_command = Supervisor


def _hosts_file(lines: Sequence[str]) -> int:
    """Return the descriptor of a file that has no name: nobody can replace it, and nothing is left of it."""
    with tempfile.TemporaryFile("w") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.seek(0)
        return os.dup(file.fileno())


def choose(plan: Plan, options: Options) -> Engine:
    """Return the engine of `--launcher`; without one `local` for one host and for `--no_ssh`, pdsh for several."""
    several = len(plan.hosts) > 1 or options.force_multi
    return named("local" if options.no_ssh else options.launcher or ("pdsh" if several else "local"))


def named(name: str) -> Engine:
    """Return the engine of this name, our own or another package's; raises InvalidArguments."""
    if name in _OWN:
        return _OWN[name]
    points = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name not in points:
        raise InvalidArguments(
            f"no engine is called {name!r}: --launcher {name}; expected one of "
            f"{', '.join([*_OWN, *sorted(points)])}",
            do=(
                f"choose one of them, or install the package that has an entry point {name!r} of the group "
                f"{ENTRY_POINT_GROUP}"
            ),
        )
    loaded = points[name].load()
    engine: Engine = loaded() if isinstance(loaded, type) else loaded
    return engine


class Local:
    """Starts the ranks of a plan with one host; with `--no_ssh`, which runs on each host, those of `--node_rank`."""

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable if the plan has several hosts, without `--no_ssh`."""
        if len(plan.hosts) > 1 and not options.no_ssh:
            raise EngineUnavailable(
                f"the engine local cannot start ranks on other hosts: a plan for {len(plan.hosts)} hosts: "
                f"{', '.join(host.name for host in plan.hosts[:4])}",
                do="choose another --launcher, or --no_ssh with --node_rank and run the command on each host",
            )

    def supervisor(self, job: Job, options: Options, view: View) -> Supervisor:
        """Return a supervisor of the ranks; rank 0 reads the launcher's standard input."""
        stdin = os.dup(0)  # The number of standard input itself is that of a guard's parent pipe.
        assignments = job.assignments(options.node_rank if options.no_ssh else 0, stdin)
        return Supervisor(job, GUARD, view, assignments=assignments, inherited=(stdin,))


class Pdsh:
    """pdsh: ssh to each host of the plan, where a guard runs the host's ranks.

    pdsh passes no standard input on, and other users read command lines: the job, with the variables for the ranks,
    goes ahead by ssh to a file of each host that its guard reads and removes. The connection's standard input is the
    guard's parent pipe: it ends with pdsh.
    """

    _PROGRAM = (("pdsh",), "pdsh", "apt install pdsh")
    _MOST_HOSTS = 1024
    _EXITED = re.compile(rb"pdsh@[^:]*: ([^:\s]+): .*exited with exit code (\d+)")

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable without pdsh and ssh, and for an IPv6 address."""
        find_program(*self._PROGRAM)
        if bracketed := next((host.name for host in plan.hosts if "[" in host.name), None):
            raise EngineUnavailable(
                f"pdsh cannot connect to an IPv6 address: the host {bracketed}; pdsh takes brackets for a "
                "range of names",
                do="name the host in ~/.ssh/config, and use that name in the hostfile",
            )
        find_program(("ssh",), "pdsh over ssh", "apt install openssh-client")

    def supervisor(self, job: Job, options: Options, view: View) -> Supervisor:
        """Return a supervisor of pdsh."""
        environment = {"PDSH_RCMD_TYPE": "ssh"}
        if options.ssh_port is not None:
            former = os.environ.get("PDSH_SSH_ARGS_APPEND", "")
            environment["PDSH_SSH_ARGS_APPEND"] = f"{former} -p {options.ssh_port}".strip()
        # Names end in the host's: hosts may share the folder. The guard takes the file with %h.
        path = f"/tmp/accel-job-{secrets.token_hex(16)}-"
        names = {host.name: path + host.name.rpartition("@")[2] for host in job.plan.hosts}
        ssh.write_files(names, options, job.to_text())
        variables = {name: os.environ[name] for name in _PYTHON if os.environ.get(name)}
        remote = ssh.remote_command((*GUARD, "--host"), options, "", variables)
        command = [
            find_program(*self._PROGRAM),
            # -S: the highest exit code of the guards; -N: lines without the host's name ahead of them.
            *("-S", "-N", "-f", str(self._MOST_HOSTS)),
            *("-w", ",".join(host.name for host in job.plan.hosts)),
            *options.launcher_args,
            # pdsh replaces %h by the host's name.
            f"{remote.replace('%', '%%')} %h {path}%h",
        ]
        return of_command(job, command, view, environment, lost_host=self.lost_host)

    @classmethod
    def lost_host(cls, line: bytes) -> tuple[str, int] | None:
        """Return the host and the exit code of an ssh that failed, if pdsh says so on this line; pdsh waits on."""
        found = cls._EXITED.match(line)
        return (found[1].decode(), int(found[2])) if found else None


class Slurm:
    """Slurm: srun starts a guard for each rank, on the host of the plan, in the present allocation or in a new one."""

    _PROGRAM = (("srun",), "Slurm", "apt install slurm-client, and run on a cluster with Slurm")

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable if there is no srun."""
        find_program(*self._PROGRAM)

    def supervisor(self, job: Job, options: Options, view: View) -> Supervisor:
        """Return a supervisor of srun."""
        # Slurm has its own order for the names of an allocation. With the distribution `arbitrary`, task i
        # runs on line i of this file.
        hosts = _hosts_file([host.name for host, _ in job.plan.ranks()])
        command = [
            find_program(*self._PROGRAM),
            f"--ntasks={job.plan.world_size}",
            f"--nodes={len(job.plan.hosts)}",
            "--distribution=arbitrary",
            "--export=ALL",
            "--input=none",
            # The plan binds ranks, not Slurm.
            "--cpu-bind=none",
            "--mem-bind=none",
            "--kill-on-bad-exit=1",
            *options.launcher_args,
            *GUARD,
            *rank_options(SLURM),
        ]
        environment = {**job.to_environment(), "SLURM_HOSTFILE": f"/dev/fd/{hosts}"}
        return of_command(job, command, view, environment, inherited=(hosts,))


@dataclass(frozen=True)
class Hydra:
    """Intel MPI or MPICH: mpirun starts a guard for each rank. The program itself need not use MPI.

    The job reaches the guards in the environment, which mpirun transfers and other users cannot read.

    programs: names of its mpirun, those first that no other implementation has. says: words of its `--version`, and
    not_says: of another implementation's, whose programs may have the same names. variables_of: the variables that it
    sets. bootstrap: its option for the program that reaches other hosts; ssh_arguments: its variable for arguments of
    ssh.
    """

    title: str
    programs: tuple[str, ...]
    says: tuple[str, ...]
    install: str
    not_says: tuple[str, ...] = ()
    variables_of: Launcher = PMI
    bootstrap: str = ""
    ssh_arguments: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable if its mpirun is not installed."""
        self.program()

    def program(self) -> str:
        """Return the path of its mpirun."""
        others = []
        # pip installs Intel MPI next to Python, whose virtual environment need not be activated.
        places = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"
        for folder in places.split(os.pathsep):
            for path in filter(None, (shutil.which(name, path=folder) for name in self.programs)):
                if self._is_own(path):
                    return path
                others.append(path)
        paths = ", ".join(dict.fromkeys(others))
        found = f"{paths} of another MPI" if others else f"no {self.programs[0]} on PATH"
        raise _unavailable(self.title, found, self.install)

    def _is_own(self, path: str) -> bool:
        try:
            answer = run([path, "--version"], timeout=20)
        except (OSError, TimeoutExpired):
            return False
        text = answer.stdout + answer.stderr
        return any(word in text for word in self.says) and not any(word in text for word in self.not_says)

    def supervisor(self, job: Job, options: Options, view: View) -> Supervisor:
        """Return a supervisor of mpirun."""
        environment = job.to_environment()
        slots = [f"{host.name}:{len(host.ranks)}" for host in job.plan.hosts]
        hosts = _hosts_file(slots)
        placement, more = self.placement(slots, f"/dev/fd/{hosts}", environment, options.ssh_port)
        command = [
            self.program(),
            *placement,
            *options.launcher_args,
            *("-n", str(job.plan.world_size)),
            *GUARD,
            *rank_options(self.variables_of),
        ]
        return of_command(job, command, view, {**environment, **more}, inherited=(hosts,))

    def placement(
        self, slots: Sequence[str], file: str, job: Iterable[str], ssh_port: int | None
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """Return the options that place the ranks and transfer the job, and further variables for mpirun.

        slots: `host:number` of each host; file: the same as lines. job: names of the variables with the job.
        """
        port = {self.ssh_arguments: f"-p {ssh_port}"} if ssh_port is not None else {}
        # Intel MPI takes `-hosts worker-0:2` with a single host for the name `worker-0:2`.
        return (self.bootstrap, "ssh", "-machinefile", file), {**self.variables, **port}


class OpenMpi(Hydra):
    """Open MPI. It transfers those variables only that are named."""

    def placement(
        self, slots: Sequence[str], file: str, job: Iterable[str], ssh_port: int | None
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """Return the options that place the ranks and transfer the job."""
        # Containers run as root, where Open MPI asks whether that is intended.
        root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
        names = (*job, *(name for name in ("PATH", *_PYTHON) if name in os.environ))
        exports = [word for name in names for word in ("-x", name)]
        port = () if ssh_port is None else ("--mca", "plm_rsh_args", f"-p {ssh_port}")
        return (*root, "--bind-to", "none", "-H", ",".join(slots), *exports, *port), {}


_OWN: dict[str, Engine] = {
    "local": Local(),
    "impi": Hydra(
        title="Intel MPI",
        programs=("mpiexec.hydra", "mpirun"),
        says=("Intel(R) MPI",),
        install="pip install impi-rt",
        bootstrap="-bootstrap",
        ssh_arguments="I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
        variables={"I_MPI_PIN": "0"},  # The plan binds ranks, not Intel MPI.
    ),
    "openmpi": OpenMpi(
        title="Open MPI",
        programs=("mpirun.openmpi", "mpirun"),
        says=("Open MPI", "OpenRTE"),
        install="apt install openmpi-bin (or the package of your system)",
        variables_of=OPEN_MPI,
    ),
    "mpich": Hydra(
        title="MPICH",
        programs=("mpiexec.mpich", "mpiexec.hydra", "mpirun"),
        says=("HYDRA build details",),
        install="apt install mpich (or the package of your system)",
        not_says=("Intel(R) MPI",),
        bootstrap="-launcher",
        ssh_arguments="HYDRA_LAUNCHER_EXTRA_ARGS",
    ),
    "slurm": Slurm(),
    "pdsh": Pdsh(),
}
