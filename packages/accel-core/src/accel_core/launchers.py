# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Launchers, and the variables from which a process reads its rank. There is no other list of them.

docs/launch.md has the source of each name.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from accel_core.errors import InvalidEnvironment

Names = tuple[str, ...]


def _always(_: Mapping[str, str]) -> bool:
    return True


@dataclass(frozen=True)
class Launcher:
    """Variables that a launcher sets for each of its processes; of several names the first that is set counts.

    hosts:   number of hosts.
    job:     text that differs between jobs, alike in all ranks of one.
    applies: False where the variables are set in a process that is not a rank.
    """

    name: str
    rank: Names
    size: Names = ()
    local_rank: Names = ()
    local_size: Names = ()
    hosts: Names = ()
    job: Names = ()
    applies: Callable[[Mapping[str, str]], bool] = _always


def _in_step(environ: Mapping[str, str]) -> bool:
    # The one process of a batch script has SLURM_PROCID, too, and the SLURM_STEP_… of a step that sbatch was called in.
    tasks = environ.get("SLURM_STEP_NUM_TASKS")
    return tasks is not None and tasks == environ.get("SLURM_NTASKS") and not _is_heterogeneous(environ)


def _is_heterogeneous(environ: Mapping[str, str]) -> bool:
    return "SLURM_HET_SIZE" in environ and "SLURM_STEP_ID" in environ


#: PyTorch's variables, which torchrun, `deepspeed` and `accel launch` set, and which win.
TORCH = Launcher("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_SIZE", "LOCAL_WORLD_SIZE"))
OPEN_MPI = Launcher(
    "Open MPI", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",),
    ("OMPI_COMM_WORLD_LOCAL_SIZE",), job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
)  # fmt: skip
#: Of Hydra (Intel MPI, MPICH), PALS, Flux and srun. Hydra has the names MPI_LOCAL…, Cray's PMI the names PMI_LOCAL_….
PMI = Launcher(
    "PMI", ("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    job=("I_MPI_HYDRA_UUID", "PMI_JOBID", "PALS_APID", "FLUX_JOB_ID"),
)  # fmt: skip
SLURM = Launcher(
    "Slurm", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS",), ("SLURM_LOCALID",), hosts=("SLURM_STEP_NUM_NODES",),
    job=("SLURM_JOB_ID", "SLURM_STEP_ID"), applies=_in_step,
)  # fmt: skip
#: Kubernetes does not say how many pods there are. Without WORLD_SIZE a pod may well be its own job.
KUBERNETES = Launcher(
    "a Kubernetes indexed job", ("JOB_COMPLETION_INDEX",), hosts=TORCH.size,
    applies=lambda environ: bool(environ.get("JOB_COMPLETION_INDEX") and environ.get("WORLD_SIZE")),
)  # fmt: skip
#: Inner ones first: mpirun reaches other hosts by srun or Flux, whose variables its ranks inherit.
LAUNCHERS = (
    OPEN_MPI,
    PMI,
    Launcher(
        "MVAPICH", ("MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"), ("MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE"),
        ("MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK"),
        ("MV2_COMM_WORLD_LOCAL_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"),
    ),
    Launcher(
        "PALS", ("PALS_RANKID",), (), ("PALS_LOCAL_RANKID",), ("PALS_LOCAL_SIZE",), job=("PALS_APID",)
    ),
    Launcher(
        "Flux", ("FLUX_TASK_RANK",), ("FLUX_JOB_SIZE",), ("FLUX_TASK_LOCAL_ID",), hosts=("FLUX_JOB_NNODES",),
        job=("FLUX_JOB_ID",),
    ),
    Launcher(
        "jsrun", ("JSM_NAMESPACE_RANK",), ("JSM_NAMESPACE_SIZE",), ("JSM_NAMESPACE_LOCAL_RANK",),
        ("JSM_NAMESPACE_LOCAL_SIZE",),
    ),
    SLURM,
    Launcher("a heterogeneous Slurm job", ("SLURM_PROCID",), applies=_is_heterogeneous),
    Launcher("PMIx", ("PMIX_RANK",), (), ("PMIX_LOCAL_RANK",), job=("PMIX_NAMESPACE",)),
    KUBERNETES,
)  # fmt: skip

LOOPBACK = "127.0.0.1"
#: Every variable of the table.
VARIABLES = frozenset(
    name
    for launcher in (TORCH, *LAUNCHERS)
    for name in (*launcher.rank, *launcher.size, *launcher.local_rank, *launcher.local_size)
)
_RANK_LIKE = re.compile(r"(^|_)(L?RANK|RANK_?ID|PROC_?ID|COMPLETION_INDEX|APP_PE)$")
#: Ranks of hosts, groups and matrices.
_OTHER_RANKS = re.compile(r"(^|_)(CROSS|GROUP|LORA|MACHINE|NODE|ROLE)_RANK$")


@dataclass
class Ranks:
    """Place of this process among the ranks of its job; None if no launcher has set it.

    launcher: that of the rank. job: differs between jobs; "" if unknown. conflict: variables that contradict.
    """

    launcher: Launcher = TORCH
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    job: str = ""
    conflict: str = ""

    def fill(self, launcher: Launcher, environ: Mapping[str, str]) -> None:
        """Take what is missing from the launcher's variables, unless they are those of another rank."""
        rank, size = _rank(environ, launcher.rank), _size(environ, launcher.size)
        if rank != self.rank and None not in (rank, self.rank):
            return
        if size != self.size and None not in (size, self.size):
            if self.rank is None and rank is not None:
                self.conflict = f"{launcher.size[0]}={size}, {TORCH.size[0]}={self.size}"
            return
        if self.rank is None and rank is not None:
            self.launcher, self.rank = launcher, rank
        self.size = self.size or size
        local_rank = _rank(environ, launcher.local_rank)
        self.local_rank = local_rank if self.local_rank is None else self.local_rank
        self.local_size = self.local_size or _size(environ, launcher.local_size)
        if launcher is SLURM:
            self.local_size = self.local_size or _tasks_of_node(environ)
        self._derive(_size(environ, launcher.hosts))
        if launcher is self.launcher:  # another one's may differ between ranks
            self.job = ".".join(environ[name] for name in launcher.job if environ.get(name))

    def _derive(self, hosts: int | None) -> None:
        """Derive the local numbers of ranks that share one host, or have one each."""
        if self.size == 1:
            self.rank = self.rank or 0
        if hosts == 1:
            self.local_size = self.local_size or self.size
        elif hosts and hosts == self.size:
            self.local_rank, self.local_size = self.local_rank or 0, self.local_size or 1
        if self.local_rank is None and self.size is not None and self.size in (1, self.local_size):
            self.local_rank = self.rank


def launched(environ: Mapping[str, str] = os.environ) -> Ranks:
    """Return the place of this process among the ranks of its job. PyTorch's variables win.

    A launcher of one process counts as none. Raises `InvalidEnvironment` if a variable of a launcher is not a number.
    """
    ranks = Ranks()
    ranks.fill(TORCH, environ)
    for launcher in LAUNCHERS:
        if launcher.applies(environ):
            if ranks.rank is None and _size(environ, launcher.size) == 1:
                break
            ranks.fill(launcher, environ)
    return ranks


def rank_like(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return variables that look like the rank of a launcher that is not in the table, as `NAME=value`."""
    known = VARIABLES.difference(KUBERNETES.rank)
    return [
        f"{name}={value}"
        for name, value in sorted(environ.items())
        if value.isdecimal()
        and name not in known
        and _RANK_LIKE.search(name)
        and not _OTHER_RANKS.search(name)
    ]


def first_host(ranks: Ranks, environ: Mapping[str, str] = os.environ) -> str:
    """Return the host of rank 0 if all ranks are on one, or if Slurm has placed them; else ""."""
    if ranks.size is not None and ranks.local_size == ranks.size:
        return LOOPBACK
    if ranks.launcher is not SLURM or environ.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        return ""
    first = re.match(r"([^,\[]|\[[^\]]*\])*", environ.get("SLURM_STEP_NODELIST", ""))
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0]) if first else ""


def starter(names: Names) -> str:
    """Return the process that has started this host's ranks: the nearest ancestor without these variables."""
    import psutil  # not in each `import torch`

    pid = os.getppid()
    with contextlib.suppress(psutil.Error, OSError):  # another user's process, or none
        while not psutil.Process(pid).environ().keys().isdisjoint(names):
            pid = psutil.Process(pid).ppid()
    return str(pid)


def _tasks_of_node(environ: Mapping[str, str]) -> int | None:
    """Return the number of Slurm's tasks on this host, from a text like `2(x3),1`."""
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
    node = _rank(environ, ("SLURM_NODEID",))
    return counts[node] if node is not None and node < len(counts) else None


def _numbers(environ: Mapping[str, str], names: Names) -> list[int]:
    for name in names:
        if not re.fullmatch(r"\d{0,9}", environ.get(name, ""), re.ASCII):
            raise InvalidEnvironment(
                f"cannot read {name}, which launchers set: {name}={environ[name]!r}; expected a number, 0 or "
                "above",
                do=f"start the ranks with `accel launch`, `deepspeed` or `torchrun`, or unset {name}",
            )
    return [int(environ[name]) for name in names if environ.get(name)]


def _rank(environ: Mapping[str, str], names: Names) -> int | None:
    return next(iter(_numbers(environ, names)), None)


def _size(environ: Mapping[str, str], names: Names) -> int | None:
    return next(filter(None, _numbers(environ, names)), None)
