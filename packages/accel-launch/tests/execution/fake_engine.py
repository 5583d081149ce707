# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stands for mpirun, srun or pdsh in tests: records its arguments, and starts the command for each task as they do.

What it reads and sets was recorded from Intel MPI 2021.18, MPICH 4.0.2 and Open MPI 4.1.4; for srun from its manual.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

_IMPI, _MPICH = (
    "Intel(R) MPI Library for Linux* OS, Version 2021.18.1",
    "HYDRA build details:\n    Version: 4.0.2",
)
_OPENMPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
#: What each says is its version, and the variables in which a task finds its rank, its local rank and their number.
KINDS = {
    "impi": (_IMPI, "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    "mpich": (_MPICH, "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    "openmpi": ("mpirun.openmpi (OpenRTE) 4.1.4", *_OPENMPI),
    "slurm": ("slurm 23.02", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
}


def main(kind: str, record: Path, arguments: list[str]) -> int:
    if kind == "pdsh":
        return _pdsh(arguments)
    version, rank, local_rank, size = KINDS[kind]
    if arguments in (["--version"], ["-version"]):
        print(version)
        return 0
    record.write_text(json.dumps(arguments))
    start = arguments.index(sys.executable)
    before, command = arguments[:start], arguments[start:]
    hosts = _hosts(kind, before)
    environment = dict(os.environ)
    if kind == "openmpi":  # It transfers the variables after -x only; PATH is here for the fake itself.
        named = {before[i + 1] for i, word in enumerate(before) if word == "-x"}
        environment = {name: value for name, value in environment.items() if name in named or name == "PATH"}
    tasks = []
    for number, host in enumerate(hosts):
        own = {rank: str(number), local_rank: str(hosts[:number].count(host)), size: str(len(hosts))}
        tasks.append(subprocess.Popen(command, env={**environment, **own}, stdin=subprocess.DEVNULL))
    return max(task.wait() for task in tasks)


def _pdsh(arguments: list[str]) -> int:
    """Replace %h and %% in the last argument, as pdsh does, and give it to a shell, as sshd does."""
    agents = []
    for host in arguments[arguments.index("-w") + 1].split(","):
        command = re.sub("%([h%])", lambda found, host=host: host if found[1] == "h" else "%", arguments[-1])
        agents.append(subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE))
    return max(agent.wait() for agent in agents)


def _hosts(kind: str, before: list[str]) -> list[str]:
    """The host of each task."""
    if kind == "slurm":
        return Path(os.environ["SLURM_HOSTFILE"]).read_text().split()
    if kind == "openmpi":
        slots = before[before.index("-H") + 1].split(",")
    else:
        slots = Path(before[before.index("-machinefile") + 1]).read_text().split()
    pairs = [slot.rpartition(":") for slot in slots]
    hosts = [host for host, _, count in pairs for _ in range(int(count))]
    assert before[before.index("-n") + 1] == str(len(hosts))
    return hosts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
