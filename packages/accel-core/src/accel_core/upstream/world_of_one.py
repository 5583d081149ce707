# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that no launcher started is a job of one rank.

DeepSpeed asks mpi4py which rank it is when a launcher has set no variables, and ends with "No module named 'mpi4py'".
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

from accel_core import env
from accel_core.vendor import module_exists

_log = logging.getLogger("accel_core")
#: One of these is set for each process that a launcher started.
_LAUNCHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"),
    *(
        "PMI_RANK",
        "PMIX_RANK",
        "MPI_LOCALRANKID",
        "OMPI_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_RANK",
        "PALS_RANKID",
    ),
    # DeepSpeed finds the ranks of these services by variables of theirs.
    *("AZUREML_EXPERIMENT_ID", "SM_TRAINING_ENV"),
)
#: Slurm sets its variables in batch scripts, too; a number of tasks in a step is set by srun.
_SLURM_TASKS = "SLURM_STEP_NUM_TASKS"


def prepare(arguments: Mapping[str, Any], environ: MutableMapping[str, str] = os.environ) -> tuple[str, ...]:
    """Set the variables of a job of one rank if nothing else says which rank this is; returns the names of those set.

    arguments: those of `deepspeed.init_distributed`, with defaults.
    """
    if _is_launched(environ) or not _asks_mpi(arguments) or module_exists("mpi4py"):
        return ()
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return ()
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    if "MASTER_ADDR" not in environ:
        variables[env.STORE_ADDRESS.name] = variables["MASTER_ADDR"]  # nobody else has to reach the store
    added = tuple(name for name in variables if name not in environ)
    environ.update({name: variables[name] for name in added})
    _log.info("no launcher has set RANK and WORLD_SIZE: this process is a job of one rank")
    return added


def _is_launched(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in _LAUNCHERS) or environ.get(_SLURM_TASKS, "1") != "1"


def _asks_mpi(arguments: Mapping[str, Any]) -> bool:
    return bool(
        arguments.get("auto_mpi_discovery", True)
        and arguments.get("dist_init_required") is not False
        and arguments.get("rank", -1) == -1
        and arguments.get("world_size", -1) == -1
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
