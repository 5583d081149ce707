# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""This process among its peers, before torch is imported: which rank prints, how many threads, which warnings."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings


def rank() -> int:
    """Number of this process in the whole job, as the launcher set it; 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """Number of this process on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def count() -> int:
    """Processes in the whole job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def speaks() -> bool:
    """True in the process that prints and writes results."""
    return rank() == 0


def prepare() -> None:
    """Set what torch and DeepSpeed read when they are imported; values that are set already stay."""
    if "RANK" not in os.environ:  # started by hand: a job of one
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
    # The operators of so small a model are too short to divide: threads that wait for each other on a busy
    # machine made a run five times as long.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore", FutureWarning)  # of DeepSpeed's use of torch, which is not ours to change
    if not speaks():  # what rank 0 is warned of holds for all
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")


def wait_for_launcher(seconds: float = 10.0) -> None:
    """Let rank 0 say why the job ends: a launcher stops the other ranks as soon as one has left."""
    if not speaks():
        time.sleep(seconds)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
