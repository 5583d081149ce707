# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The variables of a rank that DeepSpeed requires, derived from those of the launcher."""

from __future__ import annotations

import logging
import os
import socket
import sys
import zlib
from collections.abc import Mapping, MutableMapping
from typing import Any

from accel_core import env
from accel_core.errors import InvalidEnvironment
from accel_core.launchers import (
    LOOPBACK,
    OPEN_MPI,
    TORCH,
    VARIABLES,
    Ranks,
    first_host,
    launched,
    rank_like,
    starter,
)
from accel_core.vendor import module_exists

_log = logging.getLogger("accel_core")

REQUIRED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: DeepSpeed reads Open MPI's ranks itself on these services: Azure ML, SageMaker.
_SERVICES = ("AZUREML_EXPERIMENT_ID", "SM_TRAINING_ENV")
#: The port of `init_distributed`, where nothing names the job.
_DEFAULT_PORT = 29500
#: Ports below those that Linux gives to outgoing connections.
_FIRST_PORT, _PORTS = 10_000, 19_000


def rank_env(arguments: Mapping[str, Any], environ: MutableMapping[str, str] = os.environ) -> tuple[str, ...]:
    """Set the missing variables of a rank, or of a job of one rank without a launcher; return their names.

    Without them DeepSpeed imports mpi4py to find the rank.

    arguments: those passed to `deepspeed.init_distributed`. Raises `InvalidEnvironment` if variables are missing.
    """
    torch = sys.modules.get("torch.distributed")
    if not asks_mpi(arguments) or (torch is not None and torch.is_available() and torch.is_initialized()):
        return ()
    variables = derived(environ, arguments)
    if variables is None:
        variables = {} if module_exists("mpi4py") else _of_one_rank(environ)
    added = {name: value for name, value in variables.items() if not environ.get(name)}
    if added:
        _log.info("variables of this rank: %s", variables)
    environ.update(added)
    return tuple(added)


def asks_mpi(arguments: Mapping[str, Any]) -> bool:
    """Return False if the caller of `init_distributed` has passed the rank, or forbids to look for it."""
    return bool(
        arguments.get("auto_mpi_discovery", True)
        and arguments.get("dist_init_required") is not False
        and arguments.get("rank", -1) == -1
        and arguments.get("world_size", -1) == -1
    )


def derived(
    environ: Mapping[str, str] = os.environ, arguments: Mapping[str, Any] | None = None
) -> dict[str, str] | None:
    """Return the variables of this rank; {} if DeepSpeed finds it by itself, None unless a launcher has several ranks.

    Raises `InvalidEnvironment`.
    """
    ranks = launched(environ)
    if ranks.rank is not None and ranks.size is not None and ranks.rank >= ranks.size:
        raise _unknown(ranks, ["RANK"], environ)
    if all(environ.get(name) for name in REQUIRED):
        return {}
    if any(name in environ for name in _SERVICES) and OPEN_MPI.rank[0] in environ:
        return {}
    if ranks.size == 1 or (ranks.rank, ranks.size, ranks.local_rank) == (None, None, None):
        return None
    address = environ.get("MASTER_ADDR") or first_host(ranks, environ)
    found = (ranks.rank, ranks.size, ranks.local_rank, address)
    missing = [name for name, value in zip(REQUIRED, found, strict=False) if value in (None, "")]
    if missing:
        if module_exists("mpi4py"):
            return {}
        raise _unknown(ranks, missing, environ)
    port = _port(ranks, arguments or {}, address_derived=not environ.get("MASTER_ADDR"))
    return dict(zip(REQUIRED, map(str, found), strict=False)) | _rendezvous(address, port, environ)


def _unknown(ranks: Ranks, missing: list[str], environ: Mapping[str, str]) -> InvalidEnvironment:
    do = f"set {', '.join(missing)} for each rank"
    if "MASTER_ADDR" in missing and "SLURM_JOB_NODELIST" in environ:
        do += ', as MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    return InvalidEnvironment(
        f"cannot derive {', '.join(missing)} from the variables of the launcher: "
        f"{ranks.conflict or ', '.join(f'{name}={environ[name]}' for name in sorted(VARIABLES & environ.keys()))}",
        do=f"{do}; or install mpi4py, if MPI started the ranks",
    )


def _port(ranks: Ranks, arguments: Mapping[str, Any], address_derived: bool) -> int:
    """Return a port that all ranks of the job derive alike, and other jobs do not."""
    job = ranks.job
    if not job and address_derived and ranks.launcher is not TORCH:
        job = starter(ranks.launcher.rank)
    if "distributed_port" in arguments or not job:
        return int(arguments.get("distributed_port", _DEFAULT_PORT))
    return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS


def _of_one_rank(environ: Mapping[str, str]) -> dict[str, str]:
    if not environ.get("RANK") and (unknown := rank_like(environ)):
        _log.warning(
            "this process becomes a job of one rank, and %s may be the rank of a launcher that accel-core does not "
            "know. If there are more ranks, set %s in each of them; if not, set RANK=0 and WORLD_SIZE=1",
            ", ".join(unknown),
            ", ".join(REQUIRED),
        )
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    return variables | _rendezvous(LOOPBACK, _free_port(), environ)


def _rendezvous(address: str, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    variables = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    if address == LOOPBACK and not environ.get("MASTER_ADDR"):
        variables[env.STORE_ADDRESS.name] = address  # no other host has to reach the store
    return variables


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
