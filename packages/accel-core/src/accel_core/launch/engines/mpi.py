# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel MPI, MPICH and Open MPI: mpirun starts a worker for each rank. The program itself need not use MPI.

The job reaches the workers in the environment, which mpirun transfers and other users cannot read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from accel_core.launch import entry
from accel_core.launch.engine_errors import EngineUnavailable
from accel_core.launch.engines.engine import of_command
from accel_core.launch.job import Job
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.supervisor import Supervisor
from accel_core.launch.supervise.view import View

#: Without these the worker's Python may not start; the plan's variables come later.
_PYTHON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


class Mpi:
    """One implementation of MPI.

    programs: names of its mpirun, those first that no other implementation has. says: what its `--version` says;
    the name mpirun may be any implementation's. rank_from, local_rank_from: variables that it sets.
    """

    title: str
    programs: tuple[str, ...]
    says: tuple[str, ...]
    not_says: tuple[str, ...] = ()
    install: str
    rank_from = "PMI_RANK"
    local_rank_from = "MPI_LOCALRANKID"

    def check(self, plan: Plan, options: Options) -> None:
        """Raise EngineUnavailable if its mpirun is not installed."""
        self.program()

    def program(self) -> str:
        """Return the path of its mpirun."""
        others = []
        # pip installs Intel MPI beside Python, whose virtual environment need not be activated.
        places = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"
        for folder in places.split(os.pathsep):
            for name in self.programs:
                path = shutil.which(name, path=folder)
                if path and self._is_own(path):
                    return path
                others += [path] if path else []
        raise EngineUnavailable(
            what=f"cannot start ranks with {self.title}",
            found=f"{', '.join(dict.fromkeys(others))} of another MPI"
            if others
            else f"no {self.programs[0]} on PATH",
            expected=f"{self.title} on this host, and on the others of the job",
            do=f"{self.install}, or choose another --launcher",
        )

    def _is_own(self, path: str) -> bool:
        try:
            answer = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        text = answer.stdout + answer.stderr
        return any(word in text for word in self.says) and not any(word in text for word in self.not_says)

    def supervisor(self, job: Job, options: Options, view: View, folder: Path) -> Supervisor:
        """Return a supervisor of mpirun."""
        carried = job.to_environment()
        command = [
            self.program(),
            *self.placement(job.plan, carried, folder),
            *self.ssh_options(options),
            *options.launcher_args,
            "-n",
            str(job.plan.world_size),
            *entry.WORKER,
            *("--rank-from", self.rank_from, "--local-rank-from", self.local_rank_from),
        ]
        return of_command(job, command, view, {**carried, **self.environment(options)})

    def placement(self, plan: Plan, carried: Mapping[str, str], folder: Path) -> Sequence[str]:
        """Return the options that place the ranks; carried: the variables with the job."""
        raise NotImplementedError

    def ssh_options(self, options: Options) -> Sequence[str]:
        """Return the options for `--ssh_port`."""
        return ()

    def environment(self, options: Options) -> Mapping[str, str]:
        """Return variables for mpirun."""
        return {}


class Hydra(Mpi):
    """What Intel MPI and MPICH have in common: the process manager Hydra. It transfers the whole environment."""

    ssh_arguments: str
    bootstrap: str

    def placement(self, plan: Plan, carried: Mapping[str, str], folder: Path) -> Sequence[str]:
        """Return the options that place the ranks."""
        # Intel MPI takes `-hosts worker-0:2` with a single host for the name `worker-0:2`.
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{slots}\n" for slots in _slots(plan)), encoding="utf-8")
        return (self.bootstrap, "ssh", "-machinefile", str(hosts))

    def environment(self, options: Options) -> Mapping[str, str]:
        """Return variables for mpirun."""
        return {self.ssh_arguments: f"-p {options.ssh_port}"} if options.ssh_port is not None else {}


class IntelMpi(Hydra):
    """Intel MPI, from PyPI or a system's installation."""

    title = "Intel MPI"
    programs = ("mpiexec.hydra", "mpirun")
    says = ("Intel(R) MPI",)
    install = "pip install impi-rt"
    bootstrap = "-bootstrap"
    ssh_arguments = "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"

    def environment(self, options: Options) -> Mapping[str, str]:
        """Return variables for mpirun: the plan binds ranks, not Intel MPI."""
        return {**super().environment(options), "I_MPI_PIN": "0"}


class Mpich(Hydra):
    """MPICH."""

    title = "MPICH"
    programs = ("mpiexec.mpich", "mpiexec.hydra", "mpirun")
    says = ("HYDRA build details",)
    not_says = ("Intel(R) MPI",)
    install = "apt install mpich (or the package of your system)"
    bootstrap = "-launcher"
    ssh_arguments = "HYDRA_LAUNCHER_EXTRA_ARGS"


class OpenMpi(Mpi):
    """Open MPI. It transfers those variables only that are named."""

    title = "Open MPI"
    programs = ("mpirun.openmpi", "mpirun")
    says = ("Open MPI", "OpenRTE")
    install = "apt install openmpi-bin (or the package of your system)"
    rank_from = "OMPI_COMM_WORLD_RANK"
    local_rank_from = "OMPI_COMM_WORLD_LOCAL_RANK"

    def placement(self, plan: Plan, carried: Mapping[str, str], folder: Path) -> Sequence[str]:
        """Return the options that place the ranks, and transfer the job."""
        # Containers run as root, where Open MPI asks whether that is intended.
        root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
        names = (*carried, *(name for name in _PYTHON if name in os.environ))
        exports = [word for name in names for word in ("-x", name)]
        return (*root, "--bind-to", "none", "-H", ",".join(_slots(plan)), *exports)

    def ssh_options(self, options: Options) -> Sequence[str]:
        """Return the options for `--ssh_port`."""
        return () if options.ssh_port is None else ("--mca", "plm_rsh_args", f"-p {options.ssh_port}")


def _slots(plan: Plan) -> list[str]:
    return [f"{host.name}:{len(host.ranks)}" for host in plan.hosts]
